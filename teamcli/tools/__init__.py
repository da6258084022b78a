"""The tools that a model can call: one module each, and `catalog`, which says which agents have them.

To add one, write its module, name it in `catalog`, and run `UPDATE_SPECS=1 pytest tests/tools/test_specs.py`, which
writes `specs.json`.
"""
