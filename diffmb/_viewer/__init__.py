"""What a motion looks like: a stand-alone page, and a live one."""
