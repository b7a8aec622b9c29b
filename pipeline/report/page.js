"use strict";
// A click on a column heading sorts the table; a second click reverses the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, at) => {
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    const sort = () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => {
        const cell = row.children[at];
        return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
      };
      const body = table.tBodies[0];
      const rows = [...body.rows].sort((a, b) => {
        const [left, right] = [value(a), value(b)];
        const order = typeof left === "number" && typeof right === "number" ? left - right : String(left).localeCompare(String(right));
        return down ? -order : order;
      });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  });
}
// The button copies the setting. A page without access to the clipboard, such as a file opened from disk, selects the setting instead.
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", () => {
    const code = button.parentElement.querySelector("code");
    const done = () => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); };
    const select = () => { getSelection().selectAllChildren(code); };
    if (navigator.clipboard) { navigator.clipboard.writeText(code.textContent).then(done, select); } else { select(); }
  });
}
// A link to a closed group opens it.
const openTarget = () => { const target = document.getElementById(location.hash.slice(1)); if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); } };
addEventListener("hashchange", openTarget);
openTarget();
// Paper has no closed groups.
addEventListener("beforeprint", () => { document.querySelectorAll("details.group").forEach((group) => { group.open = true; }); });
// On a narrow screen a chart over time shows its end; a closed one has no width until it is opened.
const showNewest = (part) => { part.querySelectorAll(".newest").forEach((card) => { card.scrollLeft = card.scrollWidth; }); };
showNewest(document);
document.addEventListener("toggle", (event) => { showNewest(event.target); }, true);
// A filter for the list of groups.
const filter = document.querySelector("#filter");
if (filter) {
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of document.querySelectorAll("#groups tbody tr")) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    }
  });
}
