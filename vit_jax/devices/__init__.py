"""Devices and hosts: the mesh, joining several processes, and a watchdog for those that hang."""
