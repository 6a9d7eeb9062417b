"""What a run says at its end."""

import json
import shlex

from vit_jax.config import EarlyStopping
from vit_jax.extras.report import messages
from vit_jax.training import early_stopping


def test_an_evaluation_that_was_not_finite(tmp_path):
  line = {"step": 3, "val/top1": 0.5, "val/top5": 0.75, "val/loss": "nan", "val/examples": 8}
  (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
  watch = early_stopping.EarlyStopping(EarlyStopping(), early_stopping.Best())
  account = {"steps": 1.0}
  said = messages.conclusion(
    tmp_path, finished=True, last=3, account=account, early_stopping=watch, head=True, drawn=True
  )
  assert "Result:     val: top-1 50.00%, top-5 75.00%, loss nan on 8 images\n" in said


def test_a_result_of_an_earlier_step_says_so(tmp_path):
  scored = {"val/top1": 0.5, "val/top5": 0.75, "val/loss": 1.5, "val/examples": 8}
  lines = [{"step": 3} | scored, {"step": 6, "val/unscored": 1}]
  (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
  watch = early_stopping.EarlyStopping(EarlyStopping(), early_stopping.Best())
  said = messages.conclusion(
    tmp_path,
    finished=True,
    last=6,
    account={"steps": 1.0},
    early_stopping=watch,
    head=True,
    drawn=True,
  )
  assert "loss 1.5000 on 8 images (after step 3)\n" in said


def test_the_next_command_can_be_pasted(tmp_path):
  folder = tmp_path / "my run"
  watch = early_stopping.EarlyStopping(EarlyStopping(), early_stopping.Best())
  for head, words in (
    (True, ["export", "--source", str(folder), "--output", str(folder / "params.npz")]),
    (False, ["finetune", str(folder), "DATA"]),
  ):
    assert shlex.split(messages.next_command(folder, watch, head=head))[1:] == words
