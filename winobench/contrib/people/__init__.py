"""Items that models and people write, pages on which people judge, and blind comparison of images."""
