"""How the models that come with winobench were trained."""
