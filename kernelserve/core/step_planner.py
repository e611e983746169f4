"""Distributes the token budget of one step over the requests."""

from __future__ import annotations

from kernelserve.core.encoder_planner import EncoderPlanner
from kernelserve.core.prefill_pacer import PrefillPacer
from kernelserve.core.request import Request
from kernelserve.core.scheduler_limits import SchedulerLimits
from kernelserve.core.scheduler_state import SchedulerState
from kernelserve.core.step_plan import StepPlan
from kernelserve.protocol import PrefillStats

__all__ = ["StepPlanner"]

_MAX_LOGPROB_ROWS = 256
"""Prompt tokens that one request with prompt logprobs gets in a step: each of them needs a row of logits as wide as the
vocabulary, 0.6 MB in float32 for 150,000 tokens."""


class StepPlanner:
    """Gives each request tokens so that its computed ones catch up with all of them.

    There is no prefill or decode phase. Running requests come first, then waiting ones. A running
    request that gets nothing is skipped; a waiting one holds up everybody behind it. Memory is
    taken from running requests only for other running ones, but for one case: under the `priority`
    policy a waiting request takes the place of a strictly less urgent running one.
    """

    def __init__(
        self,
        state: SchedulerState,
        limits: SchedulerLimits,
        pacer: PrefillPacer,
        *,
        whole_images: bool = False,
    ) -> None:
        self.limits = limits
        self._pacer = pacer
        self._state = state
        self._kv = state.kv_cache_manager
        self._encoder = EncoderPlanner(state.encoder_cache, whole_images=whole_images)

    def plan_step(self) -> StepPlan:
        """Decide who gets how many tokens and blocks in this step."""
        plan = StepPlan(self.limits.max_num_batched_tokens, self._prompt_budget())
        self._plan_running(plan)
        self._plan_waiting(plan)
        return plan

    def _prompt_budget(self) -> int | None:
        """Most prompt tokens of the step; None: no limit of their own, as when no answer is being written."""
        if any(r.num_computed_tokens >= r.num_prompt_tokens for r in self._state.running):
            return self._pacer.allowance()
        return None

    def _plan_running(self, plan: StepPlan) -> None:
        running = self._state.running
        index = 0
        while index < len(running) and plan.budget > 0:
            request = running[index]
            wanted = len(request.all_token_ids) - request.num_computed_tokens
            num_tokens = self._cut(request, wanted, plan) if wanted > 1 else wanted
            if num_tokens <= 0:
                if wanted:
                    plan.refuse(request, "budget")
                index += 1
                continue
            needs = None
            if request.mm_features:
                needs = self._encoder.fit(request, request.num_computed_tokens, num_tokens, plan)
                num_tokens = needs.num_tokens
                if num_tokens == 0:
                    plan.refuse(request, "encoder", needs.needed, needs.available)
                    index += 1
                    continue
            new_block_ids = self._kv.allocate_slots(request, num_tokens)
            if new_block_ids is None:
                victim = self._state.choose_victim()
                if victim is request:
                    needed = self._kv.blocks_missing(request, num_tokens)
                    plan.refuse(request, "blocks", needed, self._kv.pool.num_available_blocks)
                elif victim in running[:index]:
                    index -= 1
                self._preempt(victim, plan)
                continue  # the same request again or, if it was the victim, the next one
            plan.grant(request, num_tokens, new_block_ids)
            if needs is not None:
                self._encoder.commit(request, needs, plan)
            index += 1
        for request in running[index:]:
            plan.refuse(request, "budget")

    def _preempt(self, victim: Request, plan: StepPlan) -> None:
        plan.revoke(victim)
        self._encoder.revoke(victim, plan)
        plan.preempted_req_ids.append(victim.request_id)
        self._state.preempt(victim)

    def _plan_waiting(self, plan: StepPlan) -> None:
        state = self._state
        while (request := state.waiting.peek()) is not None:
            if plan.preempted_req_ids:
                plan.refuse(request, "preempted_step")
                return
            if min(plan.budget, plan.prompt_budget) <= 0:
                plan.refuse(request, "budget")
                return
            if len(state.running) >= self.limits.max_num_seqs:
                plan.refuse(
                    request, "max_num_seqs", len(state.running) + 1, self.limits.max_num_seqs
                )
                self._displace_for(request, 0, plan)
                return
            if not self._admit(request, plan):
                return

    def _cut(self, request: Request, num_tokens: int, plan: StepPlan) -> int:
        """Cut a range of a prompt to what it may get in one step."""
        if threshold := self.limits.long_prefill_token_threshold:
            num_tokens = min(num_tokens, threshold)
        if request.sampling_params.prompt_logprobs is not None:
            num_tokens = min(num_tokens, _MAX_LOGPROB_ROWS)
        return min(num_tokens, plan.budget, plan.prompt_budget)

    def _admit(self, request: Request, plan: StepPlan) -> bool:
        hits = self._kv.find_cached_blocks(request)
        num_cached_tokens = len(hits) * self._kv.block_size
        num_tokens = self._cut(request, request.num_tokens - num_cached_tokens, plan)
        images = self._encoder.fit(request, num_cached_tokens, num_tokens, plan)
        num_tokens = images.num_tokens
        if num_tokens == 0:
            plan.refuse(request, "encoder", images.needed, images.available)
            return False
        block_ids = self._kv.admit(request, hits, num_tokens)
        if block_ids is None:
            needed, available = self._kv.blocks_needed(request, hits), self._kv.num_available_blocks
            plan.refuse(request, "blocks", needed, available)
            self._displace_for(request, needed - available, plan)
            return False
        if request.num_preemptions == 0:
            request.prefill_stats = PrefillStats(
                request.num_prompt_tokens,
                num_cached_tokens,
                sum(feature.position.num_embeds for feature in request.mm_features),
            )
        self._state.admit(request, num_cached_tokens)
        self._encoder.commit(request, images, plan)
        plan.admit(request, num_tokens, block_ids)
        return True

    def _displace_for(self, request: Request, num_missing_blocks: int, plan: StepPlan) -> None:
        """Preempt the least urgent running request for a strictly more urgent waiting one.

        Only if that can help, and one per step; `request` gets its turn in the next. Not in a step
        that has admitted someone, who may share blocks that the victim was to compute in it.
        """
        if self._state.policy != "priority" or plan.admitted:
            return
        lower = [other for other in self._state.running if other.priority > request.priority]
        if lower and sum(map(self._kv.num_blocks_of, lower)) >= num_missing_blocks:
            self._preempt(self._state.choose_victim(), plan)
