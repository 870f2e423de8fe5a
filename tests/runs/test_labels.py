"""Names of tasks and models as a report prints them."""

import pytest

from winobench.runs.labels import TASK_LABELS, Labelled, model_label, shortened, task_label, unique_labels


def test_no_two_labels_are_the_same():
    assert len(set(TASK_LABELS.values())) == len(TASK_LABELS)


@pytest.mark.parametrize(
    ("of", "name", "label"),
    [
        (task_label, "pets_photo", "Pets, photo prompt"),
        (task_label, "my_vqa_test", "My VQA test"),
        (task_label, "svo_subj_hard", "SVO subject hard"),
        (task_label, "flickr30k_video", "Flickr30K video"),
        (task_label, "SugarCrepe", "SugarCrepe"),
        (task_label, "__", "__"),
        # A model is called by its last part.
        (model_label, "sd21-base", "sd21-base"),
        (model_label, "openai/clip-vit-base-patch32", "clip-vit-base-patch32"),
        (model_label, "/home/someone/models/tiny pipeline/", "tiny pipeline"),
        (model_label, "C:\\models\\tiny", "tiny"),
        (model_label, "a/..", "a/.."),
    ],
)
def test_a_name_becomes_a_label(of, name, label):
    assert of(name) == label


def test_long_texts_keep_both_ends():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdefghijkl", 7) == "abcd…kl"
    assert all(len(shortened("x" * 120, most)) == most for most in range(4, 121))


def test_runs_of_another_kind_do_not_lengthen_labels():
    """A run of images has no limit and no samples. The runs that have both differ in their limits alone."""
    fields = [{"samples": "16 samples", "limit": "limit 100"}, {"samples": "16 samples", "limit": "limit 5"}, {}]
    runs = [Labelled("mine", "mine", of, f"run-{number}") for number, of in enumerate(fields)]
    assert unique_labels(runs) == ["mine (limit 100)", "mine (limit 5)", "mine"]
