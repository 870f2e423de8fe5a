"""Every table and figure of the papers whose numbers stand next to ours: how to make it, and how far it is made.

docs/write_papers.py makes docs/reference/paper_tables.md of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

EXACT, DIFFERS, COUNTED, TEXT = "exact", "differs", "counted", "text"
DATA, WEIGHTS, HOSTED, PEOPLE = "needs data", "needs weights", "needs hosted models", "needs people"
ILLUSTRATION, NOT_AVAILABLE = "illustration", "not available"
STATES: Mapping[str, str] = {
    EXACT: "our number is the printed one, on the published data or answers. The value names the test",
    DIFFERS: "our number on the published data is another than the printed one. The value gives the reason",
    COUNTED: "we count it in the published data or answers. The paper's text states no number",
    TEXT: "the project holds the text. The value names its file",
    DATA: "the data are not public, or only their owner may hand them out",
    WEIGHTS: "the numbers need a model's published weights, which no recorded run had",
    HOSTED: "the numbers need models behind a paid API, some of them withdrawn since",
    PEOPLE: "people must judge or write",
    ILLUSTRATION: "it explains or shows examples, and has no result",
    NOT_AVAILABLE: "winobench does not make it. The value gives the reason",
}
"""State -> its meaning, in the order of the page."""


@dataclasses.dataclass(frozen=True)
class Element:
    """A table or figure of a paper, or a part of one."""

    places: tuple[str, ...]  # as the paper calls them: "Table 1a". Several for one command
    content: str
    command: str  # in Markdown: the command between backticks, or what to look at
    needs: str
    states: tuple[str, ...]  # of STATES
    value: str = ""  # our numbers and their test, or the reason for none. Empty: the number of quotations


@dataclasses.dataclass(frozen=True)
class Paper:
    """A paper and its elements."""

    name: str  # in `winobench.data.published_numbers`
    title: str
    about: str  # a sentence in Markdown on where to read more
    tables: int  # how many it has
    figures: int
    elements: tuple[Element, ...]


_GDBENCH_EVAL = "winobench eval --config=gdbench:table1 --tasks=@gdbench"
_SD21 = "--model=sd21-base --dtype=bfloat16"
_SAME_METHOD = (
    "not run. On a small random pipeline, distances agree with the published code's"
    " (`tests/parity/test_scorer_recorded.py`)"
)
_FIGURE_MADE = "not run with the paper's models. `tests/report/test_page.py` makes it from test runs"

GDBENCH = Paper(
    "gdbench",
    "DiffusionITM and GDBench",
    "[Reproduce the tables of the papers](../howto/paper_tables.md) explains configs and results.",
    6,
    10,
    (
        Element(
            ("Table 1a", "Table 1b"),
            "DiffusionITM",
            f"`{_GDBENCH_EVAL} {_SD21}`",
            "the data of all tasks, SD 2.1-base",
            (WEIGHTS,),
            _SAME_METHOD,
        ),
        Element(
            ("Table 1a", "Table 1b"),
            "Diffusion Classifier",
            f"`{_GDBENCH_EVAL} {_SD21} --normalize=none`",
            "the same. It reuses the recorded errors",
            (WEIGHTS,),
            _SAME_METHOD,
        ),
        Element(
            ("Table 1a", "Table 1b"),
            "CLIP, OpenCLIP",
            f"`{_GDBENCH_EVAL} --model=clip-rn50x64,openclip-vit-l14`",
            "the data of all tasks, the two models",
            (WEIGHTS,),
        ),
        Element(
            ("Table 1a", "Table 1b"),
            "HardNeg-DiffusionITM",
            f"`{_GDBENCH_EVAL} {_SD21} --lora=FOLDER`",
            "as DiffusionITM, and a LoRA of Table 2's last row",
            (WEIGHTS,),
        ),
        Element(
            ("Table 2a", "Table 2b"),
            "vanilla SD",
            f"`winobench eval --config=gdbench:table2 --tasks=@gdbench {_SD21}`",
            "the data of all tasks, SD 2.1-base",
            (WEIGHTS,),
            _SAME_METHOD,
        ),
        Element(
            ("Table 2a", "Table 2b"),
            "NoNeg. For RandNeg, HardNeg text and HardNeg image: `random_text`, `hard_text`, `hard_image`",
            "`winobench train --config=hardneg:paper --loss.kind=none`, then the row above with `--lora=FOLDER`",
            "COCO with hard negatives ([fine-tune](../howto/fine_tune.md)), SD 2.1-base",
            (WEIGHTS,),
        ),
        Element(
            ("Table 2a", "Table 2b"),
            "all three kinds of negatives",
            "`winobench train --config=hardneg:paper`, then vanilla SD's row with `--lora=FOLDER`",
            "the same",
            (WEIGHTS,),
        ),
        Element(
            ("Table 3", "Table 5"),
            "effect sizes of Stable Diffusion",
            "`winobench eval --config=gdbench:table3 --model=sd21-base,sd15 --dtype=bfloat16`",
            "MMBias ([bias](../explanation/bias.md)), SD 2.1-base and 1.5",
            (WEIGHTS,),
        ),
        Element(
            ("Table 3", "Table 5"),
            "effect sizes of CLIP",
            "`winobench eval --config=gdbench:table3 --model=clip-rn50x64,clip-vit-b32`",
            "MMBias, the two models",
            (WEIGHTS,),
        ),
        Element(
            ("Table 4",),
            "categories of DrawBench's prompts, and Appendix B's comparison by people",
            "`winobench generate --config=images:paper --prompts=drawbench:FILE --model=sd21-base"
            " --lora=none,FOLDER`, then `winobench rate RUN --rater=NAME`",
            "DrawBench's CSV file, SD 2.1-base, a LoRA, people ([generate images](../howto/generate_images.md))",
            (WEIGHTS, PEOPLE),
            "not run. The paper: HardNeg is better in 60 of 208 comparisons, vanilla SD in 33",
        ),
        Element(
            ("Table 6",),
            "CLEVR by sub-task",
            f"Table 1's commands, as `{_GDBENCH_EVAL.replace('@gdbench', 'clevr')} {_SD21}`,"
            " then `winobench report RUN RUN RUN`",
            "the published images. Without them winobench renders scenes",
            (WEIGHTS,),
        ),
        Element(
            ("Figure 1",),
            "the method",
            "[the mathematics](../explanation/mathematics.md)",
            "nothing",
            (ILLUSTRATION,),
            "a diagram",
        ),
        Element(
            ("Figure 2", "Figure 10"),
            "GDBench by version of Stable Diffusion",
            "`winobench eval --config=gdbench:table2 --tasks=@gdbench --model=sd15,sd21-base,sdxl"
            " --dtype=bfloat16`, then `winobench report RUN RUN RUN`: the radar chart",
            "the data of all tasks, the three models",
            (WEIGHTS,),
            _FIGURE_MADE,
        ),
        Element(
            ("Figure 3",),
            "error of two images with one text and without it, against the timestep, with the images",
            f"`{_GDBENCH_EVAL.replace('@gdbench', 'flickr30k_image')} {_SD21}`,"
            " then `winobench report RUN`: one text and two images",
            "Flickr30K, SD 2.1-base",
            (WEIGHTS,),
            _FIGURE_MADE,
        ),
        Element(
            ("Figure 4",),
            "examples of the tasks",
            "`winobench report RUN`: the gallery",
            "any run of Table 1",
            (ILLUSTRATION,),
            "examples of your run",
        ),
        Element(
            ("Figure 5",),
            "images for DrawBench's prompts",
            "Table 4's commands: `pictures.html` of the run",
            "as Table 4, without people",
            (WEIGHTS,),
            "not run. The paper prints no numbers",
        ),
        Element(
            ("Figure 6",),
            "images after optimisation",
            "`winobench edit --config=edit --tasks=flickr30k_image --model=sd15`: `edits.png` of the run",
            "Flickr30K, SD 1.5",
            (WEIGHTS,),
            "not run. The paper prints no numbers",
        ),
        Element(
            ("Figure 7",),
            "images after noise and denoising",
            "`winobench edit --config=edit:denoise --tasks=flickr30k_image --model=sd15`: `edits.png` of the run",
            "Flickr30K, SD 1.5",
            (WEIGHTS,),
            "not run. The paper prints no numbers",
        ),
        Element(
            ("Figure 8",),
            "overlap of right answers",
            f"Table 1's run, `{_GDBENCH_EVAL} --model=clip-rn50x64,blip-itm-base`, then `winobench report RUN RUN RUN`",
            "as Table 1, CLIP and BLIP",
            (WEIGHTS,),
            _FIGURE_MADE,
        ),
        Element(
            ("Figure 9",),
            "accuracy against the number of samples",
            f"`{_GDBENCH_EVAL.replace('@gdbench', 'flickr30k_text')} {_SD21}`, then `winobench report RUN`",
            "Flickr30K, SD 2.1-base",
            (WEIGHTS,),
            _FIGURE_MADE,
        ),
    ),
)

_WINOVIZ_DATA = "the paper's items, which are not public"
_XXL = "--model=flan-t5-xxl --dtype=bfloat16"

WINOVIZ = Paper(
    "winoviz",
    "WinoViz",
    "[Evaluate a model on WinoViz](../howto/winoviz.md) explains protocols and results. Figures have the numbers of"
    " the arXiv version. In the workshop version, Figures 1 and 2 are one, and each later figure has the number before."
    " `--tasks=winoviz_mini_single,winoviz_mini_multi` takes our small set instead.",
    6,
    8,
    (
        Element(
            ("Table 1",),
            "zero-shot accuracy, single-hop and multi-hop",
            f"`winobench eval --config=winoviz:table1 {_XXL}`. GPT: `--model=openai:gpt-3.5-turbo-instruct`",
            f"{_WINOVIZ_DATA}, and the models",
            (DATA, WEIGHTS, HOSTED),
        ),
        Element(
            ("Table 2",),
            "zero-shot, four examples, four examples with reasons",
            f"`winobench eval --config=winoviz:table2 {_XXL}`",
            f"{_WINOVIZ_DATA}, and the models",
            (DATA, WEIGHTS, HOSTED),
        ),
        Element(
            ("Table 3",),
            "encoders after NLI training: BERT-Large",
            "`winobench train --config=nli`, then `winobench eval --config=winoviz:table3 --model=FOLDER`",
            f"{_WINOVIZ_DATA}, SNLI and ANLI ([NLI training](../howto/nli.md))",
            (DATA, WEIGHTS),
        ),
        Element(
            ("Table 3",),
            "VL-BERT-Large, Oscar-Large",
            "none",
            "networks that winobench lacks",
            (NOT_AVAILABLE,),
            "the two networks are not in winobench. The report quotes their rows",
        ),
        Element(
            ("Table 4",),
            "pragmatic and visual reasoning apart",
            f"`winobench eval --config=winoviz:table4 {_XXL}`",
            f"{_WINOVIZ_DATA}, and the models",
            (DATA, WEIGHTS, HOSTED),
        ),
        Element(
            ("Table 5",),
            "models of the paper",
            "`winobench eval --list_models`",
            "nothing",
            (ILLUSTRATION,),
            "a list of names. The command lists the models of winobench",
        ),
        Element(
            ("Table 6",),
            "questions about generated images",
            "`winobench eval --config=winoviz:table6 --dtype=bfloat16`",
            f"{_WINOVIZ_DATA}, Stable Diffusion, CLIP, BLIP-2, InstructBLIP, FLAN-T5-XXL",
            (DATA, WEIGHTS),
        ),
        Element(
            ("Table 6",),
            "rows without images",
            "`winobench eval --config=winoviz:table1 --tasks=winoviz_single"
            " --model=flan-t5-base,flan-t5-xxl --dtype=bfloat16`",
            f"{_WINOVIZ_DATA}, and the two models",
            (DATA, WEIGHTS),
        ),
        Element(
            ("Figure 1", "Figure 2"),
            "the task, and how the data were collected",
            "[items](../howto/winoviz.md#items)",
            "nothing",
            (ILLUSTRATION,),
            "diagrams",
        ),
        Element(
            ("Figure 3",),
            "examples of generated images",
            "Table 6's command, then `winobench report RUN`: questions with their images",
            "as Table 6",
            (ILLUSTRATION,),
            "examples of your run",
        ),
        Element(
            ("Figure 4",),
            "the qualification task of annotators",
            "`python -m winobench.contrib.people.winoviz_items qualify FOLDER NAME`",
            "people",
            (PEOPLE,),
            "not run by people. The 12 questions are ours: the paper prints two, without their items"
            " (`tests/contrib/people/winoviz_items/test_qualification.py`)",
        ),
        Element(
            ("Figure 5", "Figure 6", "Figure 7", "Figure 8"),
            "pages on which annotators write contrasts and sentences",
            "`python -m winobench.contrib.people.winoviz_items write OBJECTS.txt FOLDER NAME`",
            "a list of objects, people",
            (PEOPLE,),
            "not run by people. One page has all steps, in our words"
            " (`tests/contrib/people/winoviz_items/test_page.py`)",
        ),
    ),
)

_RECORDED = "winobench eval --config=wscplus --model=recorded:GPT4_results.csv"
_COMPOSITION = "python -m winobench.contrib.people.wscplus_items composition WSC+.csv"
_GENERATE = "winobench write_items --config=wscplus_generate"
_JUDGED = "then [judge and finish](../howto/wscplus.md#generate-new-sentences)"
_TEST = "`tests/tasks/test_wscplus.py`"
_COUNTS = "`tests/contrib/people/wscplus_items/test_composition.py`"
_PROMPTS = "`winobench/assets/wscplus/prompts.json`"
_PUBLISHED = "`WSC+.csv`"
_ANSWERS = "`WSC+.csv` and the published answers of GPT-4 and GPT-3.5. Those of Claude2 are not public"
_WRITERS = "a language model's API, two people"
_OWN = "not run: models write other sentences each time"

WSCPLUS = Paper(
    "wscplus",
    "WSC+",
    "[Evaluate a model on WSC+](../howto/wscplus.md) explains data, protocols and results.",
    14,
    16,
    (
        Element(
            ("Table 1", "Table 12"),
            "examples of sentences",
            _PUBLISHED,
            _PUBLISHED,
            (ILLUSTRATION,),
            "rows such as these are in the file",
        ),
        Element(
            ("Table 2",),
            "composition of the data",
            f"`{_COMPOSITION}`",
            _PUBLISHED,
            (EXACT,),
            f"45.5, 17.8 and 36.7% by type; 34.7, 48.2 and 17.1% by model ({_COUNTS})",
        ),
        Element(
            ("Table 3", "Table 13"),
            "biases in offensive sentences, and queries that get them",
            f"`{_GENERATE} --model=NAME --offensive=true --queries=offensive-race`",
            "a language model's API",
            (HOSTED,),
            _OWN,
        ),
        Element(
            ("Table 4",),
            "valid, semi-valid and invalid pairs",
            "`items.jsonl`, which `winobench write_items --workdir=RUN --finish` writes",
            _WRITERS,
            (ILLUSTRATION,),
            "examples of your run",
        ),
        Element(
            ("Table 5",),
            "counts after the judgement of people",
            f"`{_COMPOSITION}`",
            _PUBLISHED,
            (EXACT,),
            f"1,364, 534 and 1,102 without the 26 few-shot items; 3,026 in all ({_COUNTS})",
        ),
        Element(
            ("Table 5",),
            "test, validation and few-shot sets",
            f"`{_COMPOSITION}`",
            _PUBLISHED,
            (DIFFERS,),
            "2,301, 699 and 26. The paper has 2,300, 700 and 26: the file lacks one validation question, which only the"
            f" published answers have ({_COUNTS})",
        ),
        Element(
            ("Table 5",),
            "counts before the judgement of people",
            f"`{_GENERATE}:efficacy --model=NAME`, {_JUDGED}: `validity_by_type.csv`",
            _WRITERS,
            (HOSTED, PEOPLE),
            "not run. The paper's own 6,114 candidates are not public",
        ),
        Element(
            ("Table 6",),
            "accuracy of people",
            "`winobench report RUN --raters=anna.csv,ben.csv`",
            "a run, and people's answers",
            (PEOPLE,),
            "not run. The paper's averages agree with its rows (" + _TEST + ")",
        ),
        Element(
            ("Table 7", "Table 8"),
            "templates and queries that write sentences",
            _PROMPTS,
            "nothing",
            (TEXT,),
            f"in {_PROMPTS}, each with its source",
        ),
        Element(
            ("Table 9",),
            "templates that evaluate",
            _PROMPTS,
            "nothing",
            (TEXT,),
            f"in {_PROMPTS}. The text for Tree-of-Experts equals the published 700 prompts ({_TEST})",
        ),
        Element(
            ("Table 10",),
            "answers with valid and invalid reasons",
            f"`{_RECORDED}`, then `winobench report RUN`: `questions.csv` has the answers",
            _ANSWERS,
            (ILLUSTRATION,),
            "the authors judged reasons by hand. winobench judges answers alone",
        ),
        Element(
            ("Table 11",),
            "an answer for each prompt",
            "`winobench eval --config=wscplus:prompts --model=NAME`, then `winobench report RUN`: `questions.csv`",
            "a language model",
            (ILLUSTRATION,),
            "answers of your run",
        ),
        Element(
            ("Table 14",),
            "the 26 few-shot examples",
            _PROMPTS,
            "nothing",
            (EXACT,),
            f"the 26 sentences are the file's few-shot rows ({_TEST})",
        ),
        Element(
            ("Figure 1", "Figure 15", "Figure 16"),
            "the method and its prompts",
            "[protocols](../howto/wscplus.md#protocols)",
            "nothing",
            (ILLUSTRATION,),
            "diagrams",
        ),
        Element(
            ("Figure 2",),
            "validity of sentences by model",
            f"`{_GENERATE}:models --model=openai:gpt-4o,anthropic:claude-haiku-4-5`, {_JUDGED}",
            _WRITERS,
            (HOSTED, PEOPLE),
            _OWN,
        ),
        Element(
            ("Figure 3",),
            "validity by template and query",
            f"`{_GENERATE}:efficacy --model=NAME`, {_JUDGED}",
            _WRITERS,
            (HOSTED, PEOPLE),
            f"{_OWN}. The paper: 49.3% valid by Tree-of-Experts",
        ),
        Element(
            ("Figure 4",),
            "frequency of pronouns, next to the original challenge",
            f"`{_COMPOSITION} FOLDER`. Of a run's questions: `winobench report RUN`",
            _PUBLISHED,
            (COUNTED,),
            f"he 37.0%, she 34.6%, it 14.4%; WSC285: he 27.7%, she 14.0%, it 30.9% ({_COUNTS})",
        ),
        Element(
            ("Figure 5",),
            "all prompts on 100 questions",
            "`winobench eval --config=wscplus:prompts --model=NAME`",
            "`WSC+.csv`, the models",
            (HOSTED,),
        ),
        Element(
            ("Figure 6",),
            "accuracy next to people's",
            f"`{_RECORDED}`, then `winobench report RUN`",
            _ANSWERS,
            (EXACT,),
            f"GPT-4: 68.7% (481 of 700); GPT-3.5: 44.3% (310), of which the text has no number ({_TEST})",
        ),
        Element(
            ("Figure 7",),
            "accuracy by type",
            f"`{_RECORDED}`, then `winobench report RUN`",
            _ANSWERS,
            (COUNTED,),
            f"traditional, ambiguous, offensive. GPT-4: 69.3, 44.8, 86.3%; GPT-3.5: 62.3, 11.0, 42.2% ({_TEST})",
        ),
        Element(
            ("Figure 8",),
            "kinds of errors",
            f"`{_RECORDED}`, then `winobench report RUN`",
            _ANSWERS,
            (EXACT,),
            "evasion, ambiguity, entity. GPT-4: 19, 119, 81; GPT-3.5: 5, 267, 118. Each of the 1,400 answers has the"
            f" authors' kind ({_TEST})",
        ),
        Element(
            ("Figure 9",),
            "accuracy by writer of the sentences",
            "`winobench eval --config=wscplus --model=recorded:GPT3_results.csv`, then `winobench report RUN`",
            _ANSWERS,
            (EXACT,),
            f"GPT-3.5 on its own sentences: 36.1%. The text has no other numbers ({_TEST})",
        ),
        Element(
            ("Figure 10",),
            "sentences by type and model",
            f"`{_COMPOSITION} FOLDER`. Of a run's questions: `winobench report RUN`",
            _PUBLISHED,
            (COUNTED,),
            "traditional, ambiguous, offensive. GPT-4: 704, 232, 510; GPT-3.5: 40, 154, 318; Claude2: 620, 148, 274"
            f" ({_COUNTS})",
        ),
        Element(
            ("Figure 11",),
            "outcomes by type, of 700 questions",
            f"`{_RECORDED}`, then `winobench report RUN`",
            _ANSWERS,
            (COUNTED,),
            f"right of 326, 163 and 211. GPT-4: 226, 73, 182; GPT-3.5: 203, 18, 89. We choose the layout ({_TEST})",
        ),
        Element(
            ("Figure 12",),
            "validity by pairs a request",
            f"`{_GENERATE}:batches --model=NAME`, {_JUDGED}",
            _WRITERS,
            (HOSTED, PEOPLE),
            f"{_OWN}. We choose 1 to 5 pairs",
        ),
        Element(
            ("Figure 13",),
            "validity by type and model",
            f"`{_GENERATE} --model=openai:gpt-4o,anthropic:claude-haiku-4-5`, {_JUDGED}",
            _WRITERS,
            (HOSTED, PEOPLE),
            _OWN,
        ),
        Element(
            ("Figure 14",),
            "validity in eleven repeats",
            f"`{_GENERATE}:repeats --model=NAME`, {_JUDGED}",
            _WRITERS,
            (HOSTED, PEOPLE),
            _OWN,
        ),
    ),
)

PAPERS = (GDBENCH, WINOVIZ, WSCPLUS)
"""All papers, in the order of the page."""
