"""The process itself: its signals, outputs, memory and end. Imports nothing that takes time."""
