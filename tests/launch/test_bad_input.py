"""What a command cannot take is refused in one sentence, and nothing is written."""

import pytest

from tests import launching
from tests.evaluation import fakes
from tests.generation import fakes as generation_fakes
from tests.report.conftest import Skilled, make_run

# command -> {words: what the sentence has}
REFUSED = {
    "generate": {
        "--prompts=absent.txt": "absent.txt cannot be read",
        "--prompts=drawbench": "'drawbench' are read from their published file: write drawbench:FILE",
        "--model=clip-vit-b32": "'clip-vit-b32' judges images, but generates none",
        "--lora_scale=2": "lora_scale is 2.0, but no LoRA is named",
        "--sampler=flow_euler": "the sampler flow_euler is for flow models, which this is not",
        "--num_steps=1001": "num_steps for 'clevr-tiny' is 1001, but it must be a whole number from 1 to 1",
        "--seeds=1,1": "the seeds 1, 1 name one twice",
        "--rater=a": "--rater",
    },
    "eval": {
        "--model=/nowhere": "model '/nowhere' is neither a folder",
        "--model={empty}": "{empty}",
        "--tasks=clevrr": "clevrr",
        "--tasks=": "no task is chosen",
        "--log=mlflow": "log is 'mlflow', but it must be one or more of tensorboard",
        "--error=l3 --model={tiny}": "error is 'l3'",
        "--lora=none.safetensors --model={tiny}": "none.safetensors does not exist",
    },
    "export": {
        "": "no run is named: winobench export RUN",
        "{run} absent": "absent",
        "{run} --format=excel": "--format",
        "{run} --format=parquet": "--out",
    },
    "compare": {
        "": "two runs are compared, but 0 are named",
        "{run}": "but 1 are named",
        "{run} {run}": "is named twice",
        "{run} absent": "absent",
        "{run} {run} --format=excel": "--format",
        "{run} {run} --raters=a": "--raters",
    },
    "prepare": {
        "--tasks=colorswap --source=/nowhere --data_dir=d": "--source=/nowhere is not a folder: name the one",
        "--workers=0 --tasks=genderbias --data_dir=d": "flag --workers",
    },
    "report": {
        "": "no run is named: winobench report RUN",
        "{run} --out=file": "--out file cannot be written",
        "{run} --gallery=many": "--gallery",
        "{run} --galery=3": "did you mean --gallery?",
        "{run} --raters=absent.csv": "the file absent.csv is missing: name a CSV file with the columns item",
        "{run} --format=excel": "--format=excel",
    },
    "train": {
        "--config=hardneg:quick": "hardneg comes as clevr, paper, debug, not 'quick'.",
        "--config=hardneg --processes=here": "'here' is neither auto nor host:port,count,number",
        "--config=hardneg --log=mlflow": "log is 'mlflow', but it must be one or more of tensorboard",
        "--config=hardneg:paper": "coco_hardneg_train",
    },
    "view": {
        "": "no folder is named",
        "absent": "absent does not exist: name a folder",
        "file": "file is a file: name a folder",
        ". --port=1 --bundle=site": "leave out --port",
        ". --bundle=": "--bundle",
        ". --prot=1": "did you mean --port?",
    },
    "judge": {
        "": "no run is named",
        "{images}": "no judge is named: give --model=JUDGE",
        "absent --model=m": "absent does not exist",
        "{images} --model=m --rubric=other": "'other' is unknown",
        "{images} --model=openai:m --api.vote=3": "no flag --api.vote: did you mean --api.votes?",
        "{images} --model=openai:m --api=votes=3": "--api is a group: give one of --api.base_url, ",
        "{images} --model=openai:m --api.votes=many": "--api.votes is a whole number",
        "{images} --model=m --of=a": "--of has no effect without --detector",
        "{images} --model=m --prompts=p": "--prompts has no effect for a run",
        "{images} --model=m --people=p --rubric=tiif": "--rubric has no effect with --people",
        "{images} --model=m --lay_out=new": "--model has no effect with --detector or --lay_out",
        "{images} --model=clip-vit-b32 --rubric=geneval2": "no prompt has questions for the rubric geneval2",
    },
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run = make_run(Skilled(0.4), folder / "one", chosen=[fakes.text_task()])
    return {"run": run, "images": generation_fakes.draw(folder / "images", "a").folder}


@pytest.mark.parametrize(
    ("command", "words", "said"), [(name, *row) for name, table in REFUSED.items() for row in table.items()]
)
def test_bad_input_is_one_sentence_and_writes_nothing(command, words, said, runs, tiny_pipeline, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    names = {**runs, "tiny": tiny_pipeline, "empty": tmp_path / "empty"}
    launching.refuse(f"launch.{command}", *words.format(**names).split(), named=[said.format(**names)], cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]
