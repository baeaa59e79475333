"""What the kernel of this machine says, and whose processes it speaks of."""
