"""Images and records: decoding, rendered CLEVR scenes and their captions."""
