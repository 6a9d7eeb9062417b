"""Devices and hosts: the mesh, joining several processes, and a watch over those that hang."""
