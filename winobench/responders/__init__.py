"""Models that answer questions in text: language models here and behind APIs, text encoders, recorded answers."""
