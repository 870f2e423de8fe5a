"""Small files in the published layouts of DPG-Bench, OneIG-Bench, TIIF-Bench, LongText-Bench and CVTG-2K."""

import csv
import json

DPG_COLUMNS = (
    *("item_id", "text", "keywords", "proposition_id", "dependency", "category_broad", "category_detailed"),
    *("tuple", "question_natural_language"),
)
DPG_TEXTS = {"partiprompts97": "A robot.", "midjourney3": "A cat on a mat, seen from afar.", "whoops5": "A red moon."}
DPG_QUESTIONS = {  # (id, dependency, tuple, question)
    "partiprompts97": [
        (1, "0", "entity - whole (robot)", "Is there a robot?"),
        (2, "1", "attribute - type (robot, old)", "Is the robot old?"),
    ],
    "midjourney3": [
        (1, "0", "entity - whole (cat)", "Is there a cat?"),
        (2, "0", "entity - whole (mat)", "Is there a mat?"),
        (3, "1, 2", "relation - spatial (cat, mat, on)", "Is the cat on the mat?"),
        (4, "3", "attribute - state (cat, asleep)", "Does the cat sleep there?"),
        (5, "1", "attribute - color (cat, grey)", "Is the cat grey?"),
        (7, "6", "entity - part (mat's edge)", "Is there the mat's edge? "),
        (6, "2", "global - (seen from afar)", "Is it seen from afar?"),
    ],
    "whoops5": [
        (1, "0", "entity - whole (moon)", "Is there a moon?"),
        (2, "1", "attribute - color (moon, red)", "Is the moon red?"),
    ],
}

ONEIG_QUESTIONS = {
    "anime": {"000": (["One?", "Two?", "Three?", "Four?", "Five?"], [[0], [1], [2], [0, 3], [5]])},
    "human": {"000": (["A man?", "Alone?"], [[2], [0]]), "001": (["A woman?"], [[0]])},
    "object": {"000": (["A cup?", "Is it blue?", "Is it full?"], [[0], [1], [1, 2]])},
}
ONEIG_ROWS = [
    ("Anime_Stylization", "000", "1girl, solo, anime", "T, P", "short", "chibi"),
    ("Portrait", "000", "A man alone.", "NP", "short", ""),
    ("Portrait", "001", "A woman,\nin the rain.", "NP", "long", ""),
    ("General_Object", "000", "A full blue cup.", "NP", "middle", ""),
    ("Text_Rendering", "000", 'A sign that says "yes".', "NP", "short", ""),
]

ONEIG_TEXT = "['yes', 'Now 5\\\\n9']"
ONEIG_ZH_QUESTIONS = {
    "anime_zh": {"000": (["有没有男孩？", "男孩有4个吗？"], [[0], [1]])},
    "human_zh": {"000": (["有人吗？"], [[0]])},
    "object_zh": {"000": (["有杯子吗？"], [[0]])},
    "multilingualism_zh": {"000": (["有舞台吗？"], [[0]])},
}
ONEIG_ZH_ROWS = [
    ("Anime_Stylization", "000", "4男孩", ""),
    ("Portrait", "000", "一个人", ""),
    ("General_Object", "000", "一个杯子", ""),
    ("Text_Rendering", "000", "标语“是”", ""),
    ("Text_Rendering", "001", "标语“OK”", ""),
    ("Multilingualism", "000", "颁奖典礼", ""),
]

LONGTEXT = {  # file -> rows of prompt, text
    "text_prompts.jsonl": [('A sign that reads "OPEN, 24 h".', ["OPEN, 24 h"]), ("Two signs.", ["One", "Two"])],
    "text_prompts_zh.jsonl": [("一块写着“每日 OK”的牌子。", ["每日 OK"])],
}
CVTG_PROMPT = "A sign that says 'READ Now!'. A cup with the word 'It'."

TIIF = {  # type -> (short, long, questions, answers)
    "action+2d": [
        ("A child runs.", "With joy, a child runs.", ["Is there a child?  ", "Does it run?"], ["yes", "yes"]),
        ("A dog sits.", "In the sun, a dog sits.", ["Is there a dog?"], ["yes"]),
    ],
    "negation": [("No cat.", "A street without a cat.", ["Is there a street?", "Is there a cat?"], ["yes", "no"])],
    "style": [("A fox in Ghibli style", "A fox, painted.", ["Is the image in Ghibli style?"], ["Yes"])],
}


def write_dpg(folder, questions=DPG_QUESTIONS, texts=DPG_TEXTS):
    """The folder dpg_bench with its table and its texts."""
    (folder / "prompts").mkdir(parents=True)
    for item, text in texts.items():
        (folder / "prompts" / f"{item}.txt").write_text(text)
    with (folder / "dpg_bench.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(DPG_COLUMNS)
        for item, asked in questions.items():
            for number, dependency, entry, question in asked:
                text = DPG_TEXTS.get(item, item)
                writer.writerow((item, text, "", number, dependency, "", "", entry, question))
    return folder


def write_oneig(folder, questions=ONEIG_QUESTIONS, rows=ONEIG_ROWS):
    """The repository's folder with its table and the files of questions."""
    (folder / "scripts" / "alignment" / "Q_D").mkdir(parents=True)
    for name, entries in questions.items():
        content = {key: _numbered(*parts) for key, parts in entries.items()}
        (folder / "scripts" / "alignment" / "Q_D" / f"{name}.json").write_text(json.dumps(content))
    with (folder / "OneIG-Bench.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("category", "id", "prompt_en", "type", "prompt_length", "class"))
        writer.writerows(rows)
    return folder


def write_oneig_texts(folder, end="", texts=(("000", ONEIG_TEXT),)):
    """The file of texts of the repository's folder."""
    (folder / "scripts" / "text").mkdir()
    with (folder / "scripts" / "text" / f"text_content{end}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("", "id", "prompt_en", "text_content"))
        writer.writerows((number, key, "", text) for number, (key, text) in enumerate(texts))
    return folder


def write_oneig_zh(folder):
    """The Chinese table, questions and texts of the repository's folder."""
    write_oneig(folder, ONEIG_ZH_QUESTIONS, [])
    with (folder / "OneIG-Bench-ZH.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("category", "id", "prompt_cn", "class"))
        writer.writerows(ONEIG_ZH_ROWS)
    return write_oneig_texts(folder, "_zh", (("001", "['OK']"), ("000", "['是']")))


def write_longtext(folder, files=LONGTEXT):
    """The folder textbench with its files of prompts."""
    folder.mkdir()
    for name, rows in files.items():
        fields = {"category": "sign", "length": "short"}
        lines = [fields | {"prompt": prompt, "text": text, "prompt_id": 2 * n} for n, (prompt, text) in enumerate(rows)]
        (folder / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return folder


def write_cvtg(folder, style="CVTG-Style"):
    """The folder with both parts, of two prompts a file."""
    for part in ("CVTG", style):
        (folder / part).mkdir(parents=True)
        for regions in range(2, 6):
            rows = [{"index": 3 * number, "prompt": f"{CVTG_PROMPT} {part} {number}."} for number in range(2)]
            (folder / part / f"{regions}.json").write_text(json.dumps({"data_list": rows}))
    return folder


def write_tiif(folder, content=TIIF):
    """The folder data with those of prompts and of questions. Returns that of the prompts."""
    for name in ("test_prompts", "test_eval_prompts"):
        (folder / name).mkdir(parents=True)
    for kind, entries in content.items():
        prompts = [{"type": kind, "short_description": short, "long_description": long} for short, long, *_ in entries]
        asked = [{"type": kind, "yn_question_list": texts, "yn_answer_list": answers} for *_, texts, answers in entries]
        for name, lines in (f"test_prompts/{kind}_prompts", prompts), (f"test_eval_prompts/{kind}_eval_prompts", asked):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "test_prompts"


def _numbered(questions, dependency):
    return {
        name: json.dumps({str(number): value for number, value in enumerate(values, 1)})
        for name, values in (("question", questions), ("dependency", dependency))
    }
