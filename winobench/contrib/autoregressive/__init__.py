"""Image generators that predict tokens: their likelihood as a score, their answers, and their images."""
