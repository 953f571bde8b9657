"""Files read in a process of their own, which can be ended: from the waiting side to the sandbox."""
