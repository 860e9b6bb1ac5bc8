"""The paper's study: its streams, its statistics, its tables, and the comparison with them.

`python -m experiments.paper --help`, in a clone of the repository. It may import the package; the
package never imports it.
"""
