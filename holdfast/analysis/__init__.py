"""What finished trajectories say, as tidy tables. Never imports torch.

Every function takes the ``cells`` of a study, one row a trajectory, and either gives its table or
refuses with one line that names the cell it lacks. Values are shares in [0, 1], not percentages.
"""
