"""What released versions left behind: their schema with data of every kind, and who they were."""
