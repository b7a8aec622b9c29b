"""Changes the code on purpose, one small mutation at a time, and looks whether a test notices: `make mutants`.

mutations.py      the mutations of a file, each with a name that survives shifts of its lines
running.py        pytest, collected once: which test touches which line, and the verdict on each mutation in a fork
swapping.py       puts a mutated function in the place of the one that is loaded
loading.py        the same for what is evaluated at import: in a process of its own, by an import hook
results.py        cached verdicts that are still valid
equivalents.py    mutations that do not change behaviour
report.py         the table and the survivors

mutmut 3 mutates no module-level code, and its trampolines change what tests measure; cosmic-ray starts the tests anew for
each mutation, which takes seconds. Here a mutation costs a fork and, mostly, a few tests.
"""
