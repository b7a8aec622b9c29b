"""Mutation testing: changes the code, one small mutation at a time, and reports those that no test detects: `make mutants`.

mutations.py      the mutations of a file, with ids that do not depend on line numbers
running.py        runs pytest, with one collection and a fork for each run: finds the lines that a test covers, judges each mutation
swapping.py       replaces the code of a loaded function by its mutation
loading.py        imports a mutated module in a new process, for code that runs at import
results.py        cached verdicts
report.py         the table and the survivors

Why no existing tool: mutmut 3 mutates no module-level code, and its trampolines slow tests that measure time; cosmic-ray restarts the tests
for each mutation, which takes seconds. Here a mutation costs a fork and usually a few tests.
"""
