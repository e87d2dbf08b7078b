"""Tables as people have them, turned into arrays of order one."""
