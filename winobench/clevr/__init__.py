"""The rendered world: scenes, places, objects, captions, questions and negatives."""
