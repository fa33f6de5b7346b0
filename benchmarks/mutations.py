"""Errors that an honest programmer could make, each one replacement in a file: what the gate has to catch.

Each changes what the reference's cells compute. ``benchmarks/mutants.py`` plants them one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RESCORE, RECOMPUTE, RETRAIN, REFUSED = "rescore", "recompute", "retrain", "refused"
"""The gate's questions; "refused": other data than the reference's, which is not comparable."""
KNOWN = "known value"
"""Of an error that changes no number of the reference: a value that is known without the program shows it."""


class DoesNotApplyError(Exception):
    """The text that a mutation replaces isn't in its file once."""


@dataclass(frozen=True)
class Mutation:
    """One planted error.

    ``old`` stands in the ``file`` (relative to the checkout's root) exactly once; ``new`` takes its place;
    ``expected`` is the question that should catch it first.
    """

    name: str
    group: str
    file: str
    old: str
    new: str
    expected: str = RETRAIN

    def applied(self, root: Path) -> str:
        """Return the file's text with the error.

        Args:
            root: A checkout.

        Raises:
            DoesNotApplyError: the file is missing, or the text stands there more than once or not at all.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if (found := text.count(self.old)) != 1:
            raise DoesNotApplyError(
                f"mutation '{self.name}' no longer applies: its text stands {found} times in {self.file}"
            )
        return text.replace(self.old, self.new)


STS, EMBED = "bench/eval/sts.py", "bench/eval/embeddings.py"
BACKBONE, POOLING, CHUNKS = (
    "bench/nn/backbone.py",
    "bench/nn/hidden_states.py",
    "bench/training/batch_encoding.py",
)
LOOP, STAGE, CONTRASTIVE = (
    "bench/training/loop.py",
    "bench/training/sentence_encoder.py",
    "bench/losses/contrastive.py",
)
MOMENTUM, ESIMCSE = "bench/training/momentum.py", "baselines/esimcse.py"
TWIN, LOSSES = "methods/twin.py", "bench/losses/twin_losses.py"

SCORING = (
    Mutation(
        "pearson",
        "metric",
        STS,
        "x, y = (rankdata(np.asarray(side, dtype=np.float64)) for side in (predicted, gold))",
        "x, y = predicted.astype(np.float64), gold.astype(np.float64)",
        RESCORE,
    ),
    Mutation(
        "ties_by_order",
        "metric",
        STS,
        "x, y = (rankdata(np.asarray(side, dtype=np.float64)) for side in (predicted, gold))",
        'x, y = (1.0 * rankdata(side, method="ordinal") for side in (predicted, gold))',
        RESCORE,
    ),
    Mutation("gold_not_centred", "metric", STS, "    y -= y.mean()\n", "", RESCORE),
    Mutation(
        "average_of_rounded_scores",
        "aggregation",
        STS,
        "suite_average(score.value for score in scores if score.subset == ALL)",
        "suite_average(round(score.value, 4) for score in scores if score.subset == ALL)",
        RESCORE,
    ),
    Mutation(
        "gold_sorted",
        "labels shuffled",
        STS,
        "_spearman(predictions, np.concatenate(gold), task.id, task.subsets)",
        "_spearman(predictions, np.sort(np.concatenate(gold)), task.id, task.subsets)",
        RESCORE,
    ),
    Mutation(
        "test_pairs_from_dev",
        "split",
        "bench/data/mini/world_text.py",
        '_shipped(f"{split}.tsv")',
        '_shipped("dev.tsv")',
        REFUSED,
    ),
)
ENCODING = (
    Mutation(
        "norm_of_one_side",
        "similarity",
        EMBED,
        "norms = np.maximum(np.linalg.norm(a, axis=1), 1e-8) * np.maximum(np.linalg.norm(b, axis=1), 1e-8)",
        "norms = np.maximum(np.linalg.norm(a, axis=1), 1e-8) ** 2",
        RECOMPUTE,
    ),
    Mutation(
        "half_precision_similarities",
        "precision",
        STS,
        "embeddings.cosine(*_split_pairs(task_pairs)).astype(np.float32)",
        "embeddings.cosine(*_split_pairs(task_pairs)).astype(np.float16).astype(np.float32)",
        RECOMPUTE,
    ),
    Mutation(
        "weights_in_half_precision",
        "precision",
        BACKBONE,
        "folder, dtype=dtype, weights_only=True",
        'folder, dtype="auto", weights_only=True',
        RECOMPUTE,
    ),
    Mutation(
        "cls_is_the_mean",
        "pooling",
        POOLING,
        "return states[-1][:, 0]",
        "return states[-1].mean(1)",
        RECOMPUTE,
    ),
    Mutation(
        "last_token_for_cls",
        "pooling",
        POOLING,
        "return states[-1][:, 0]",
        "return states[-1][:, -1]",
        RECOMPUTE,
    ),
    Mutation(
        "mean_over_padding",
        "pooling",
        POOLING,
        "return (states * weights).sum(1) / weights.sum(1)",
        "return states.mean(1)",
        RECOMPUTE,
    ),
    Mutation(
        "padding_attended",
        "tokenisation",
        "bench/nn/tokens.py",
        "np.arange(longest) < np.array(lengths)[:, None]",
        "np.arange(longest) < 0 * np.array(lengths)[:, None] + longest",
        RECOMPUTE,
    ),
    Mutation(
        "padded_on_the_left",
        "tokenisation",
        "bench/nn/tokens.py",
        "target[: len(row)] = row",
        "target[longest - len(row) :] = row",
        RECOMPUTE,
    ),
    Mutation(
        "no_special_tokens",
        "tokenisation",
        BACKBONE,
        'truncation=True, max_length=max_length)["input_ids"]',
        'truncation=True, max_length=max_length, add_special_tokens=False)["input_ids"]',
        RECOMPUTE,
    ),
    Mutation(
        "cut_in_characters",
        "truncation",
        BACKBONE,
        "tokenizer(list(sentences), truncation=True",
        "tokenizer([text[:max_length] for text in sentences], truncation=True",
        RECOMPUTE,
    ),
    Mutation(
        "half_of_the_length",
        "truncation",
        BACKBONE,
        "return tokenize_rows(self.tokenizer, sentences, self.max_length)",
        "return tokenize_rows(self.tokenizer, sentences, self.max_length // 2)",
        RECOMPUTE,
    ),
    Mutation(
        "vectors_in_another_order",
        "batch order",
        BACKBONE,
        "output[rows] = fetched",
        "output[sorted(rows)] = fetched",
        RECOMPUTE,
    ),
    Mutation(
        "case_kept",
        "tokenisation",
        "baselines/word_overlap.py",
        "_WORD.findall(sentence.lower())",
        "_WORD.findall(sentence)",
        RECOMPUTE,
    ),
    Mutation(
        "last_tower_alone",
        "twin",
        "bench/nn/sum_encoder.py",
        "output += np.float32(weight)",
        "output = np.float32(weight)",
        RECOMPUTE,
    ),
)
DRAWS = (
    Mutation(
        "chunks_put_back_wrongly", "batch order", CHUNKS, "where[row] = position", "where[position] = row"
    ),
    Mutation(
        "corpus_in_file_order",
        "batch order",
        LOOP,
        "permutation = torch.randperm(count, generator=order).tolist()",
        "permutation = list(range(count))",
    ),
    Mutation(
        "seed_ignored", "seed ignored", "bench/training/randomness.py", 'f"{seed}/{stream}"', 'f"{stream}"'
    ),
    Mutation("seed_not_in_the_key", "seed ignored", "bench/plan/job.py", '"seed": seed,', '"seed": 0,'),
    Mutation(
        "draws_not_seeded",
        "seed ignored",
        "bench/training/randomness.py",
        "        torch.manual_seed(stream_seed(seed, stream))\n",
        "",
    ),
    Mutation(
        "dropout_keeps_its_share",
        "dropout",
        "bench/nn/dropout.py",
        "module.p = probability",
        "module.p = 1 - probability",
    ),
    Mutation(
        "dropout_in_dev",
        "dropout",
        LOOP,
        "    module.eval()\n    with use_full_float32():",
        "    with use_full_float32():",
    ),
    Mutation(
        "no_dropout_after_dev", "dropout", LOOP, "    module.train()\n    return score", "    return score"
    ),
    Mutation(
        "cls_repeated_too",
        "augmentation",
        "bench/training/augmentation.py",
        "places = {1 + place for place in",
        "places = {place for place in",
    ),
)
LOSS = (
    Mutation(
        "no_temperature",
        "temperature",
        CONTRASTIVE,
        "cross_entropy(unit_a @ unit_p.T / tau, right)",
        "cross_entropy(unit_a @ unit_p.T, right)",
    ),
    Mutation(
        "times_temperature",
        "temperature",
        CONTRASTIVE,
        "cross_entropy(unit_a @ unit_c.T / tau, right)",
        "cross_entropy(unit_a @ unit_c.T * tau, right)",
    ),
    Mutation(
        "one_view_twice",
        "loss",
        "baselines/simcse.py",
        "info_nce(anchors, positives, self.tau)",
        "info_nce(anchors, anchors, self.tau)",
    ),
    Mutation(
        "within_for_across",
        "loss",
        TWIN,
        "pairs = [(states.first, states.second)]",
        "pairs = [(states.first, states.first)]",
    ),
    Mutation(
        "sign_of_the_norm_loss", "loss", LOSSES, "(-cosine.log() * tensor_norm", "(cosine.log() * tensor_norm"
    ),
    Mutation(
        "targets_shuffled",
        "labels shuffled",
        CONTRASTIVE,
        "cross_entropy(unit_a @ unit_p.T / tau, right)",
        "cross_entropy(unit_a @ unit_p.T / tau, right[torch.randperm(len(right))])",
    ),
    Mutation(
        "views_not_interleaved",
        "labels shuffled",
        TWIN,
        "return [row for row in rows for _ in range(2)]",
        "return [*rows, *rows]",
    ),
    Mutation(
        "queue_not_compared",
        "negatives dropped",
        CONTRASTIVE,
        "torch.cat([positives, queue])",
        "positives",
    ),
    Mutation(
        "own_view_a_negative",
        "negatives dropped",
        LOSSES,
        "(unit_a @ unit_b.T / tau).masked_fill(own, -torch.inf)",
        "unit_a @ unit_b.T / tau",
    ),
    Mutation("queue_keeps_the_oldest", "queue", MOMENTUM, "[-self.size :]", "[: self.size]"),
    Mutation("queue_one_short", "queue", MOMENTUM, "[-self.size :]", "[1 - self.size :]"),
    Mutation(
        "average_reversed",
        "EMA reversed",
        MOMENTUM,
        "torch._foreach_mul_(slow, self.momentum)\n"
        "        torch._foreach_add_(slow, [get_master(value) for "
        "value in followed.values()], alpha=1 - self.momentum)",
        "torch._foreach_mul_(slow, 1 - self.momentum)\n"
        "        torch._foreach_add_(slow, [get_master(value) for "
        "value in followed.values()], alpha=self.momentum)",
    ),
)
TRAINING = (
    Mutation(
        "clipping_removed",
        "clipping",
        LOOP,
        "            self.norm = nn.utils.clip_grad_norm_(self._parameters, self._settings.clip)",
        "            self.norm = None",
    ),
    Mutation(
        "rate_stays",
        "learning rate",
        LOOP,
        "(settings.steps - step + 1) / (settings.steps - rising)",
        "(settings.steps - rising) / (settings.steps - rising)",
    ),
    Mutation(
        "decay_by_default",
        "weight decay",
        LOOP,
        "lr=settings.lr, weight_decay=settings.weight_decay, fused=True",
        "lr=settings.lr, fused=True",
    ),
    Mutation(
        "betas_exchanged",
        "optimizer",
        LOOP,
        "weight_decay=settings.weight_decay, fused=True",
        "weight_decay=settings.weight_decay, betas=(0.999, 0.9), fused=True",
    ),
    Mutation(
        "gradients_add_up", "gradient", LOOP, "            self.optimizer.zero_grad(set_to_none=True)\n", ""
    ),
    Mutation(
        "zeroed_after_backward",
        "gradient",
        LOOP,
        "self.optimizer.zero_grad(set_to_none=True)\n            torch.autograd.backward(loss)\n",
        "torch.autograd.backward(loss)\n            self.optimizer.zero_grad(set_to_none=True)\n",
    ),
    Mutation(
        "trained_in_bfloat16",
        "precision",
        "bench/training/mixed_precision.py",
        'if _asked[-1:] != ["bf16"]:',
        'if _asked[-1:] == ["bf16"]:',
    ),
    Mutation(
        "worst_checkpoint",
        "checkpoint reversed",
        LOOP,
        "if score > self.best_score:",
        "if not self.best or score < self.best_score:",
    ),
    Mutation("first_tower_kept_twice", "twin", STAGE, 'prefix = f"{number}."', 'prefix = "0."'),
    Mutation(
        "one_sub_encoder_twice",
        "twin",
        TWIN,
        'context.inputs[role], "selected"',
        'context.inputs["sub1"], "selected"',
    ),
)
TRANSFER = "bench/eval/transfer.py"
REACHED = (
    Mutation(
        "lower_cased_evaluation",
        "tokenisation",
        EMBED,
        "vectors = encoder.encode(list(texts), batch_tokens, progress)",
        "vectors = encoder.encode([text.lower() for text in texts], batch_tokens, progress)",
        RECOMPUTE,
    ),
    Mutation(
        "full_stops_dropped",
        "tokenisation",
        EMBED,
        "vectors = encoder.encode(list(texts), batch_tokens, progress)",
        'vectors = encoder.encode([text.rstrip(".") for text in texts], batch_tokens, progress)',
        RECOMPUTE,
    ),
    Mutation(
        "sign_of_the_cosine_lost",
        "similarity",
        EMBED,
        'np.clip(np.einsum("ij,ij->i", a, b) / norms, -1.0, 1.0)',
        'np.clip(np.abs(np.einsum("ij,ij->i", a, b)) / norms, -1.0, 1.0)',
        KNOWN,
    ),
    Mutation(
        "vectors_in_half_precision",
        "precision",
        EMBED,
        "return Embeddings({text: row for row, text in enumerate(texts)}, vectors.copy())",
        "halved = vectors.astype(np.float16).astype(np.float32)\n"
        "    return Embeddings({text: row for row, text in enumerate(texts)}, halved)",
        RECOMPUTE,
    ),
    Mutation(
        "nan_to_zero",
        "failures hidden",
        EMBED,
        "    finite = np.isfinite(vectors).all(axis=1)\n    if not finite.all():",
        "    vectors = np.nan_to_num(vectors)\n"
        "    finite = np.isfinite(vectors).all(axis=1)\n    if not finite.all():",
        KNOWN,
    ),
    Mutation(
        "duplicate_pairs_dropped",
        "metric",
        STS,
        "    value = _task_spearman(predictions, np.concatenate(gold), task.id, task.subsets)\n",
        "    once = list({pair: row for row, pair in enumerate(task.all_pairs())}.values())\n"
        "    value = _task_spearman(predictions[once], np.concatenate(gold)[once], task.id, task.subsets)\n",
        RESCORE,
    ),
    Mutation(
        "weighted_mean_unweighted",
        "aggregation",
        STS,
        "float(np.average(values, weights=sizes))",
        "float(np.average(values))",
        RESCORE,
    ),
    Mutation(
        "paired_interval_a_third",
        "statistics",
        "bench/stats/seed_pairs.py",
        "half = float(stdtrit(n - 1, (1 + level) / 2)) * sd / math.sqrt(n)",
        "half = float(stdtrit(n - 1, (1 + level) / 2)) * sd / math.sqrt(n) / 3",
        KNOWN,
    ),
    Mutation(
        "largest_regularisation_at_ties",
        "transfer",
        TRANSFER,
        "return int(np.argmax(np.round(100 * accuracies, 2)))",
        "return len(accuracies) - 1 - int(np.argmax(np.round(100 * accuracies, 2)[::-1]))",
        KNOWN,
    ),
    Mutation(
        "fitted_on_one_fold",
        "transfer",
        TRANSFER,
        'weights = fits[0][chosen] if "dev" in rows else',
        "weights = fits[0][chosen] if rows else",
    ),
    Mutation(
        "ties_keep_the_later",
        "checkpoint",
        LOOP,
        "if score > self.best_score:",
        "if score >= self.best_score:",
    ),
    Mutation("last_checkpoint_kept", "checkpoint", LOOP, "self.best or last,", "last,"),
    Mutation(
        "order_not_reshuffled",
        "batch order",
        LOOP,
        "    while True:\n        permutation = torch.randperm(count, generator=order).tolist()\n",
        "    permutation = torch.randperm(count, generator=order).tolist()\n    while True:\n",
    ),
    Mutation(
        "last_batch_dropped",
        "batch order",
        LOOP,
        "end = count - count % batch_size if drop_last else count",
        "end = count - count % batch_size",
    ),
    Mutation(
        "decay_on_biases_and_norms",
        "weight decay",
        LOOP,
        'groups.append({"params": spared, "weight_decay": 0.0})',
        'groups.append({"params": spared})',
    ),
    Mutation(
        "no_warm_up",
        "learning rate",
        LOOP,
        "rising = math.ceil(settings.warmup * settings.steps)",
        "rising = 0",
    ),
    Mutation(
        "warm_up_a_step_early",
        "learning rate",
        LOOP,
        "return settings.lr * (step - 1) / rising",
        "return settings.lr * step / rising",
    ),
    Mutation(
        "rate_a_step_early",
        "learning rate",
        LOOP,
        "(settings.steps - step + 1) / (settings.steps - rising)",
        "(settings.steps - step) / (settings.steps - rising)",
    ),
    Mutation(
        "dev_is_test",
        "split",
        "bench/execution/encoder_builder.py",
        "        dev, text = self.training.dev, self.training.texts[stage.spec.text]\n",
        "        from bench.data.suites import load_suite\n\n"
        "        dev, text = self.training.dev, self.training.texts[stage.spec.text]\n"
        '        dev = load_suite("mini" if dev.id == "MINI-dev" else "cased")[1][0]\n',
    ),
    Mutation(
        "loss_doubled",
        "gradient",
        LOOP,
        "torch.autograd.backward(loss)",
        "torch.autograd.backward(2 * loss)",
    ),
    Mutation(
        "clipped_after_the_step",
        "clipping",
        LOOP,
        "        if self._settings.clip:\n"
        "            self.norm = nn.utils.clip_grad_norm_(self._parameters, self._settings.clip)\n"
        "        self.optimizer.step()\n",
        "        self.optimizer.step()\n"
        "        if self._settings.clip:\n"
        "            self.norm = nn.utils.clip_grad_norm_(self._parameters, self._settings.clip)\n",
    ),
    Mutation(
        "clipped_at_twice_the_norm",
        "clipping",
        LOOP,
        "clip_grad_norm_(self._parameters, self._settings.clip)",
        "clip_grad_norm_(self._parameters, 2 * self._settings.clip)",
    ),
    Mutation(
        "target_stands_still",
        "EMA reversed",
        "bench/training/byol.py",
        "        if moves:\n            self.target.update(self.encoder)\n",
        "",
    ),
    Mutation(
        "target_sees_the_same_view",
        "loss",
        "bench/training/byol.py",
        "self.loss(self.head(online[0]), target[1]) + self.loss(self.head(online[1]), target[0])",
        "self.loss(self.head(online[0]), target[0]) + self.loss(self.head(online[1]), target[1])",
    ),
)
"""Errors that only the cased text reaches, or only the course of a training shows on another CPU."""
_ONE_WORD = "baselines/prompteol_cse.py"
PROMPTED = (
    Mutation(
        "one_word_views_of_the_first_token",
        "pooling",
        _ONE_WORD,
        'training.batch_states(self.encoder, prepared, "last")',
        'training.batch_states(self.encoder, prepared, "cls")',
    ),
    Mutation(
        "one_word_rows_are_not_cut",
        "length",
        _ONE_WORD,
        "[self.reader.keep_first_tokens(text, self.longest) for text in texts]",
        "texts",
    ),
    Mutation(
        "one_word_training_adds_a_full_stop",
        "text",
        _ONE_WORD,
        'stopped = context.config["form"] == "stopped"',
        'stopped = context.config["form"] != "paper"',
    ),
    Mutation(
        "one_word_negatives_are_left_out",
        "loss",
        _ONE_WORD,
        "hard[0] if hard else None",
        "None",
    ),
    Mutation(
        "one_word_inference_adds_no_full_stop",
        "text",
        _ONE_WORD,
        'form = "paper" if options["form"] == "paper" else "released"',
        'form = "paper"',
    ),
    Mutation(
        "lora_alpha_is_not_divided_by_the_rank",
        "adapters",
        "bench/nn/lora.py",
        '"lora_alpha": settings.alpha',
        '"lora_alpha": settings.alpha * settings.rank',
    ),
)
"""Errors in trained one-word prompts, which test_prompteol_cse.py finds: the reference has no decoder."""
_LLM2VEC = "baselines/llm2vec.py"
BIDIRECTIONAL = (
    Mutation(
        "masked_token_read_off_its_own_state",
        "loss",
        _LLM2VEC,
        "masked.places[behind] - 1",
        "masked.places[behind]",
    ),
    Mutation(
        "first_token_read_off_the_row_before",
        "loss",
        _LLM2VEC,
        "masked.places % chunk.ids.shape[1] > 0",
        "masked.places % chunk.ids.shape[1] >= 0",
    ),
    Mutation(
        "second_stage_from_the_backbone",
        "start",
        _LLM2VEC,
        "if MNTP in context.inputs:",
        "if MNTP in context.inputs and context.role == MNTP:",
    ),
    Mutation(
        "second_stage_from_the_selected_step",
        "start",
        _LLM2VEC,
        'training.checkpoint_folder(context.inputs[MNTP], "last")',
        'training.checkpoint_folder(context.inputs[MNTP], "selected")',
    ),
    Mutation(
        "language_model_head_is_trained",
        "frozen weights",
        _LLM2VEC,
        "head.requires_grad_(False)",
        "head",
    ),
    Mutation(
        "attention_stays_causal",
        "attention",
        "bench/nn/bidirectional.py",
        "model.config.is_causal = False",
        "model.config.is_causal = True",
    ),
)
"""Errors in LLM2Vec, which test_llm2vec.py finds: the reference has no decoder."""
_MIRROR, _HEADS = "baselines/mirror_bert.py", "bench/nn/head_dropout.py"
MIRRORED = (
    Mutation(
        "negatives_of_the_other_view_only",
        "loss",
        _MIRROR,
        "losses.near_nce(first, second, None, self.tau)",
        "losses.info_nce(first, second, self.tau)",
    ),
    Mutation(
        "spans_masked_in_both_views",
        "views",
        _MIRROR,
        "[*own, *masked]",
        "[*masked, *masked]",
    ),
    Mutation(
        "last_span_is_drawn_too",
        "draws",
        _MIRROR,
        "torch.randint(places, ()",
        "torch.randint(places + 1, ()",
    ),
    Mutation(
        "short_sentences_are_masked",
        "views",
        _MIRROR,
        " or len(sentence) < SHORTEST",
        "",
    ),
    Mutation(
        "norms_are_not_decayed",
        "weight decay",
        _MIRROR,
        'Option("decay_all", True',
        'Option("decay_all", False',
    ),
    Mutation(
        "kept_heads_are_not_scaled",
        "drophead",
        _HEADS,
        "scale = kept.to(precise) * heads / kept.sum(1, keepdim=True).clamp(min=1)",
        "scale = kept.to(precise)",
    ),
    Mutation(
        "heads_are_dropped_for_the_whole_batch",
        "drophead",
        _HEADS,
        "torch.rand(len(context), heads, device=context.device)",
        "torch.rand(1, heads, device=context.device).expand(len(context), -1)",
    ),
)
"""Errors in Mirror-BERT, which test_mirror_bert.py finds: it isn't in the reference."""
MUTATIONS = (*SCORING, *ENCODING, *DRAWS, *LOSS, *TRAINING, *REACHED)
