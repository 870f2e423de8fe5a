"""Names of tasks and models as a report prints them."""

import pytest

from winobench.runs.labels import TASK_LABELS, model_label, shortened, task_label


def test_no_two_labels_are_the_same():
    assert len(set(TASK_LABELS.values())) == len(TASK_LABELS)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("pets_photo", "Pets, photo prompt"),
        ("my_vqa_test", "My VQA test"),
        ("svo_subj_hard", "SVO subject hard"),
        ("flickr30k_video", "Flickr30K video"),
        ("SugarCrepe", "SugarCrepe"),
        ("__", "__"),
    ],
)
def test_a_name_becomes_a_label(name, label):
    assert task_label(name) == label


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("sd21-base", "sd21-base"),
        ("openai/clip-vit-base-patch32", "clip-vit-base-patch32"),
        ("/home/someone/models/tiny pipeline/", "tiny pipeline"),
        ("C:\\models\\tiny", "tiny"),
        ("a/..", "a/.."),
    ],
)
def test_a_model_is_called_by_its_last_part(model, label):
    assert model_label(model) == label


def test_long_texts_keep_both_ends():
    assert shortened("abc", 3) == "abc"
    assert shortened("abcdefghijkl", 7) == "abcd…kl"
    assert all(len(shortened("x" * 120, most)) == most for most in range(4, 121))
