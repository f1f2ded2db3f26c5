"""What is measured beside every run: processes, cores, network, GPUs, power, heat.

What cannot be read is *unmeasurable*, with why, and never zero.
"""
