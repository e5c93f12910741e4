"""The deep baselines, one per file; `cometad.BASELINES` lists them. `deep` has what they share, `loop` trains them.

In: scaled rows (time, variable). Out: a score per time step. Equal to the bit: fits with equal seeds, and saved files;
the order in which a network creates its layers decides its random weights, their names are in its file.
"""
