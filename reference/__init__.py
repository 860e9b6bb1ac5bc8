"""The paper's equations as plain code: slow and short, one file per mechanism.

It uses torch, transformers and PEFT, and computes in the dtype of the tensors it is given. The
engine, the package `holdfast`, is tested and timed against it and does not import it; here only
translation.py imports the engine. README.md lists the equations of each file.
"""
