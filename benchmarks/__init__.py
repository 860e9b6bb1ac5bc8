"""What a step and sampling cost beside the plain reference, and facts to measure memories with."""
