"""Forms of answers, each with the reading that a person would give it. None where a person would not be sure."""

import pytest

from winobench.base import answer_texts

LETTERS = ("A", "B", "C")
YES = (
    *("Yes", "yes", "YES", "Yes.", "yes!", "'Yes'", '"Yes."', "**Yes**", "*yes*.", "`Yes`", "__Yes__", "Answer: Yes"),
    *("Final answer: **Yes**", "The answer is yes.", "The answer to your question is: Yes.", "**Answer:** Yes"),
    *("**Answer**: Yes, a cat", "Answer - Yes", '{"answer": "Yes"}', '{"answer": true}'),
    *('```json\n{"answer": "yes", "reason": "no dog"}\n```', 'Here: {"answer":"Yes"}', "{'answer': 'Yes'}"),
    *("\\boxed{Yes}", "$\\boxed{\\text{Yes}}$", "<answer>Yes</answer>", "<answer>\n\\boxed{Yes}</answer>", "- Yes"),
    *("1. Yes", "(a) Yes", "• yes, there is", "> Yes", "# Yes", "是", "是的", "是的，图中有一只猫。", "有", "对。"),
    *("Oui", "Oui, il y a un chat", "Sí", "Sí, hay un gato.", "Si.", "はい", "はい、います。", "Да", "Да, есть.", "Ja"),
    *("Ja, es gibt eine Katze.", "Sim", "Evet", "네", "예, 있습니다.", "نعم", "हाँ", "Ｙｅｓ", "\ufeffYes"),
    *("Yes\u200b", "Yes, there is no dog.", "Yes, no doubt.", "Yeah", "yep", "I would say yes."),
    *("Based on the image, yes.", "The image shows a cat. Yes.", "Is there a cat? Please answer yes or no. Yes"),
    *("<think>no cat? no.</think>Yes", "<think>hm no\n</think>\n\nYes", "no dog\n</think>\nYes"),
    "<|channel|>analysis<|message|>No?<|end|><|start|>assistant<|channel|>final<|message|>Yes",
    *("◁think▷No.◁/think▷Yes", "The image shows a cat on a mat. Therefore, the answer is yes.", "Yes — there is a cat"),
    *("Yes\n\nThere is a cat on the mat, and no dog.", "y", "Y.", "True", "true.", "Q: Is there a cat?\nA: Yes"),
    *("<b>Yes</b>", "Yes<|im_end|>", "<|begin_of_box|>Yes<|end_of_box|>", "«Oui»", "「はい」", "答案：是"),
    *("答案是：是", "Réponse : oui", "Ответ: да", "Antwort: Ja", "✅ Yes", "Answer:\nYes", "### Answer\nYes"),
    *("Sure! Yes.", "Result: yes", '["Yes"]', '{"response": {"answer": "Yes"}}', "Yes there are three dogs."),
    *("Answer = Yes", "A: Yes", "My answer would be yes", "It is true that yes", "Yes (95% sure)", "yes;"),
    *("Yes / there is", "**Yes**, the image shows a cat that is not black.", "Yes, I can't see any problem", "YES!!!"),
    *("Yes because no dog is there", "Ναι", "Igen, van", "Tak.", '{"count": 2, "answer": "Yes", "label": "cat"}'),
)
NO = (
    *("No", "no.", "NO", "**No**, none", "No, there are two dogs", "No dogs", "Answer: no", "否", "不是", "没有"),
    *("不，没有", "Non", "Non, il n'y a pas", "Nein", "Нет", "いいえ", "아니요", "No. There is no cat."),
    *('{"answer": false}', "\\boxed{No}", "Nope", "No, there is a yes sign.", "<think>yes</think>No"),
    *("The answer is no, since yes is not visible", "There is a dog. The answer: No.", "Não", "Hayır", "HAYIR"),
    *("False", "n", "I think the answer is no.", "لا", "No; it is red"),
    *("Answer: No\nExplanation: Yes would need a cat", "不。", "没有。图中没有猫", "No — yes signs"),
)
NEITHER = (
    *("", "   ", None, "I'm sorry, but I can't help with identifying that.", "I cannot tell.", "Maybe", "Yes and no"),
    *("Yes or no", "yes/no", "Yes. No.", "No. Yes.", "No, I can't help with that request."),
    *("I can't answer yes or no.", "No comment", "No idea.", "No image was provided.", "unclear", "N/A", "yesterday"),
    *("Not sure", "对不起，我无法回答", "不确定", "是否", "无法判断", "有没有", "Answer: Yes\nAnswer: No"),
    *("\\boxed{Yes} \\boxed{No}", "cat", "The cat is on the mat", "not yes", "<think>Yes", "I would not say yes"),
    *("Neither yes nor no", "It could be yes or no", "No doubt it is", "The answer is unclear", "不好意思"),
    *("Je ne sais pas", '{"answer": "unclear"}', "[]", "{}", '{"answer": null}', "Unable to answer yes"),
    *("Please answer yes or no.", "Yes? No?", "No-one knows", "I can neither say yes"),
)
# number -> texts that say it
NUMBERS = {
    2: (
        *("2", "2.", "two", "Two.", "**2**", "No, there are two dogs"),
        *("There are two dogs: one on the left and one on the right.", "Answer: 2", "The answer is 2."),
        *('{"answer": 2}', '{"count": "2"}', '{"answer": 2.0}', "\\boxed{2}", "<answer>2</answer>"),
        *("<think>3 or 4</think>2", "２", "二", "两只狗", "I am 100% sure there are 2", "- 2"),
        *("2 dogs (one large, one small)", "two of five", "one on the left and one on the right, so two"),
        *("The number of dogs is 2", "`2`", "2 dogs", "There are 2 dogs.\n\nThere are 2 dogs.", "\n2\n"),
        *("2\n\nThe image shows two dogs.", "Count: 2", "2/2", "2!", "(2)", "[2]", "“2”", "Yes, 2", '["2"]'),
        *("```\n2\n```", "Two (2)", "2 (two)"),
    ),
    3: ("There are 3.", "about 3", "1. 3", "3.0"),
    0: (
        *("no dogs", "None.", "zero", "None of 5", "There is no dog in the image.", "No", "no.", "No, none"),
        *("There are no dogs", "not any", "None", "No objects of this kind", "0", "0."),
    ),
    12: ("12", "Twelve"),
    None: (
        *("1. a dog 2. a dog", "1. a dog\n2. a dog", "some", "many", "2 or 3", "2-3", "at least 3", "more than two"),
        *("two dogs and one cat", "one dog and two cats", '{"answer": 2.5}', "2.5", "512x512", "I'm sorry, I can't"),
        *("", None, "three dogs, one is brown", "the second dog", "1 and 2", "3+", "between 2 and 4", "2 dogs, 1 cat"),
        *("x", "2 / 5", "Zero dogs, two cats", "2nd", "a dog", "Yes", "-2"),
    ),
    1000: ("1,000",),
    21: ("twenty-one", "twenty one"),
    1: ("1)", "1.", "There's one dog"),
    10: ("ten", "10"),
    5: ("5 dogs are visible: 3 on the left, 2 on the right",),
}
# options -> place of the chosen one -> texts
MARKS = {
    LETTERS: {
        0: ("A", "\\boxed{A}"),
        1: ("B.", "The answer is B", "B) red", "**B**", '{"answer":"B"}', "B: red", "b"),
        2: ("(C)", "Option C"),
        None: ("A dog is here", "A or B", "", "I cannot tell", "The first"),
    },
    ("red", "blue"): {0: ("red", "Red."), None: ("red and blue", "dark red", "redder")},
    ("one", "two", "three"): {1: ("2", "Two dogs"), None: ("4",)},
    ("Yes", "No"): {0: ("是",), 1: ("No",)},
    ("No", "Yes"): {1: ("yes",)},
    ("0", "1", "2"): {0: ("0",)},
}
SCORES = (
    *((text, [80]) for text in ('{"score": 80, "explanation": "x"}', '{"score": "80"}', "Score: 80")),
    *(("**Score:** 80/100", [80]), ("{'score': 80.5}", [80.5]), ('[{"score": 4},{"score": 5}]', [4, 5]), ("no", [])),
    ("<think>score: 3</think>score = 4", [4]),
)
LINES = (
    *("Yes, sun.\nNo.", "1. Yes\n2. No", '["yes","no"]', '{"1":"yes","2":"no"}', "Yes, No", "**Yes** - a\n**No** - b"),
    *("是\n否", '[{"question":"a?","answer":"Yes"},{"question":"b","answer":"no"}]', "| Yes |\n| No |"),
    *("<think>yes\nyes</think>yes\nno", "Answers:\n- Yes\n- No", "yes no"),
)


@pytest.mark.parametrize(
    ("text", "answer"),
    [*((text, True) for text in YES), *((text, False) for text in NO), *((text, None) for text in NEITHER)],
)
def test_yes_or_no(text, answer):
    assert answer_texts.yes_no(text) is answer


@pytest.mark.parametrize(("text", "number"), [(text, number) for number, texts in NUMBERS.items() for text in texts])
def test_numbers(text, number):
    assert answer_texts.number(text) == number


@pytest.mark.parametrize(
    ("text", "marks", "place"),
    [(text, marks, place) for marks, places in MARKS.items() for place, texts in places.items() for text in texts],
)
def test_marks(text, marks, place):
    assert answer_texts.mark(text, marks) == place


@pytest.mark.parametrize(("text", "numbers"), SCORES)
def test_scores(text, numbers):
    assert answer_texts.scores(text) == numbers


@pytest.mark.parametrize(("text", "answers"), [*((text, [True, False]) for text in LINES), ("I'm sorry", [])])
def test_lines(text, answers):
    assert answer_texts.lines(text) == answers


@pytest.mark.parametrize("part", ["<think>", "{", "[", "no, ", "1) a ", "\\boxed{", "answer to ", "not "])
def test_any_text_is_read(part):
    """Texts that repeat what begins a form end, and are not read."""
    text = part * (20_000 // len(part))
    assert (answer_texts.number(text), answer_texts.mark(text, LETTERS)) == (None, None)
    assert answer_texts.yes_no(text) in (None, False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("HELLO\n World ", "HELLO\nWorld"),
        ("Sure! Here's the text from the image:\n```text\nHELLO\n```\nMore?", "HELLO"),
        ("Here is the plan: win", "Here is the plan: win"),
        ("图片中的文字是：你好", "你好"),
        ('{"text": ["A", "B"], "language": "en"}', "A\nB"),
        ("[14, 27] and {more}", "[14, 27] and {more}"),
        ("- A\n* B\n5* HOTEL\n-5", "A\nB\n5* HOTEL\n-5"),
        ('"A," she said, "B"\n“A” “', 'A," she said, "B\n“A” “'),
        ("no readable text found.", ""),
        ("NO TEXTING", "NO TEXTING"),
        ("<think>A</think><answer>B</answer>", "B"),
        ("", ""),
        (None, ""),
    ],
)
def test_words_are_copied_without_what_is_around_them(text, words):
    assert answer_texts.copied(text) == words


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("I’m unable to read the text in this picture.", True),
        ("As an AI, I cannot view images.", True),
        ("对不起，我不能帮助你。", True),
        ("I can't believe it is butter", False),
        ("We are sorry, but the image shop is closed", False),
        ("", False),
    ],
)
def test_refusals_name_their_task(text, refused):
    assert answer_texts.refuses(text) == refused


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Realism: 1\nFit: 2", [1, 2]),
        ("**Realism:** 1/2\n**Fit** (0-2): 2 out of 2", [1, 2]),
        ('{"realism": "1", "fit": 2}', [1, 2]),
        ("realism score is 1, fit = 2.0", [1, 2]),
        ("| Realism | 1 |\n| Fit | 2 |", [1, 2]),
        ("<think>Fit: 0</think>Realism：１\nFit：２", [1, 2]),
        ("Realism: 1\nFit: 3", None),
        ("Realism: 1/10\nFit: 2", None),
        ("Realism: 1.5\nFit: 2", None),
        ("Realism: 1\nFit: 2\nFit: 0", None),
        ("Realism: 1\nBenefit: 2", None),
        ("I cannot rate it.", None),
        (None, None),
    ],
)
def test_marks_behind_their_names(text, expected):
    assert answer_texts.marks(text, ["realism", "fit"], 2) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('```json\n{"reason": ["[a]"], "score": [1, 0.5]}\n```', [[1, 0.5]]),
        ('**Scores:** ["1", 1/2] and score = [0]', [[1, 0.5], [0]]),
        ("<score>[1, 0]</score> <SCORE>0</SCORE>", [[1, 0], [0]]),
        ("score: [1, x]", []),
        ("score: [1/0]", []),
        ("score: [1e999999999]", []),
        ("score: []", []),
        ('{"final_score": [1]}', []),
        ("<think>score: [1]</think>", []),
        (None, []),
    ],
)
def test_lists_of_scores(text, expected):
    assert answer_texts.score_lists(text) == expected
