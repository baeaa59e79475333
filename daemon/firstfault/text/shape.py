"""The shape of a text: the same text but for its digits."""

SHAPE = bytes(ord("0") if ord("0") <= code <= ord("9") else code for code in range(256))  # for bytes.translate
