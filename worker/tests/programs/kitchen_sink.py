"""The kitchen sink for Temporal's official Python SDK: it interprets the programs that `kitchen-sink` interprets in Rust.

`kitchen_sink.py FOLDER` replays every FOLDER/*.json (`{"workflow_id": …, "history": {"events": […]}}`) with the official
`Replayer`, and prints a line of JSON for each: the file, and why it was refused, or null.

Branches are coroutines that are polled in order, as in Rust, by one task of the SDK: what one job makes the branches ask for
comes in the same order. A branch yields PENDING where it waits for a job, or something that the task awaits for it.
"""

import asyncio
import json
import os
import re
import sys
import uuid
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.common import RawValue, RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

PENDING = object()


class Failed(Exception):
    def __init__(self, kind, message, canceled=False, non_retryable=False):
        super().__init__(message)
        self.kind, self.message, self.canceled, self.non_retryable = kind, message, canceled, non_retryable


class GoesOn(Exception):
    """The run continues as new with this program."""


class Returned:
    """Carries the value of `return` up."""

    def __init__(self, value):
        self.value = value


def canceled(what):
    return Failed("Canceled", what, canceled=True)


def of(error):
    """A failure of the SDK as one of ours."""
    if isinstance(error, Failed):
        return error
    if isinstance(error, (FailureError, asyncio.CancelledError)):
        return Failed(type(error).__name__, str(error), canceled=is_cancelled_exception(error))
    raise error


class Scope:
    def __init__(self, above=None):
        self.canceled, self.nested = above is not None and above.canceled, []
        if above is not None:
            above.nested.append(self)

    def cancel(self):
        if self.canceled:
            return False
        self.canceled = True
        for scope in self.nested:
            scope.cancel()
        return True


class Operation:
    """Something that was asked for: an activity, a timer, a child or a message."""

    def __init__(self, kind, scope, policy, turn):
        self.kind, self.scope, self.policy, self.turn = kind, scope, policy, turn
        self.handle = self.started = None
        self.done = self.cancel_asked = False
        self.result = self.error = None
        self.workflow_id = None


class Wait:
    """Waits until `ready` gives something else than PENDING."""

    def __init__(self, ready):
        self.ready = ready

    def __await__(self):
        while True:
            found = self.ready()
            if found is not PENDING:
                return found
            yield PENDING


class Block:
    """Has the task of the SDK await something; no branch is polled meanwhile."""

    def __init__(self, awaitable):
        self.awaitable = awaitable

    def __await__(self):
        return (yield self.awaitable)


class Poll:
    """One poll of a branch: `(True, value)` or `(False, None)`."""

    def __init__(self, branch):
        self.branch = branch

    def __await__(self):
        given = None
        while True:
            try:
                asked = self.branch.send(given)
            except StopIteration as end:
                return True, end.value
            if asked is PENDING:
                return False, None
            given = yield asked


class Yield:
    def __await__(self):
        yield PENDING


async def join(branches):
    """All results, in order; an exception is a result."""
    results = [PENDING] * len(branches)
    while True:
        for index, branch in enumerate(branches):
            if results[index] is PENDING:
                try:
                    done, value = await Poll(branch)
                except (Failed, GoesOn) as error:
                    done, value = True, error
                if done:
                    results[index] = value
        if not any(result is PENDING for result in results):
            return results
        await Yield()


DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text):
    return sum(int(number) * UNITS[unit] for number, unit in DURATION.findall(text))


def period(options, key):
    return timedelta(seconds=seconds(options[key])) if options.get(key) else None


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


CANCELLATION = {
    "try": workflow.ActivityCancellationType.TRY_CANCEL,
    "wait": workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    "abandon": workflow.ActivityCancellationType.ABANDON,
}
CHILD_CANCELLATION = {
    "try": workflow.ChildWorkflowCancellationType.TRY_CANCEL,
    "wait": workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
    "abandon": workflow.ChildWorkflowCancellationType.ABANDON,
}
CLOSE = {
    "terminate": workflow.ParentClosePolicy.TERMINATE,
    "abandon": workflow.ParentClosePolicy.ABANDON,
    "request_cancel": workflow.ParentClosePolicy.REQUEST_CANCEL,
}


@workflow.defn(name="kitchen-sink")
class KitchenSink:
    @workflow.init
    def __init__(self, program: dict) -> None:
        self.program, self.vars = program, dict(program.get("vars") or {})
        self.signals, self.operations, self.conditions = {}, {}, {}
        self.root, self.seq, self.random, self.turn = Scope(), 0, 0, 0
        self.woken = asyncio.Event()

    @workflow.signal(dynamic=True)
    def signaled(self, name: str, given: Sequence[RawValue]) -> None:
        value = workflow.payload_converter().from_payload(given[0].payload) if given else None
        self.signals.setdefault(name, []).append(value)
        self.woken.set()

    @workflow.update(name="set_var")
    def set_var(self, given: dict) -> object:
        before = self.vars.get(given["name"])
        self.vars[given["name"]] = given["value"]
        self.woken.set()
        return before

    @workflow.run
    async def run(self, program: dict) -> object:
        main = self.steps(self.root, program["steps"])
        try:
            end = await self.drive(main)
        except GoesOn as next_run:
            workflow.continue_as_new(next_run.args[0])
        except Failed as failure:
            if failure.canceled and self.root.canceled and not isinstance(failure, Compensation):
                raise asyncio.CancelledError() from failure
            raise ApplicationError(failure.message, type=failure.kind, non_retryable=failure.non_retryable)
        return end.value if isinstance(end, Returned) else self.vars

    async def drive(self, main):
        given = None
        while True:
            try:
                self.turn = workflow.info().get_current_history_length()
                asked = main.send(given)
            except StopIteration as end:
                return end.value
            given = None
            if asked is not PENDING:
                given = await asked
                continue
            # A condition that has come true wakes in a round of its own.
            held = [key for key, (condition, ready) in self.conditions.items() if not ready and condition()]
            for key in held:
                self.conditions[key] = (self.conditions[key][0], True)
            if held:
                continue
            try:
                await self.woken.wait()
                self.woken.clear()
            except asyncio.CancelledError:
                now = workflow.info().get_current_history_length()
                if workflow.cancellation_reason() is None or now <= self.turn:
                    # Nobody asked for it: the SDK takes the run out of its cache.
                    raise
                self.turn = now
                for asked in self.cancel(self.root):
                    await asked

    def cancel(self, scope):
        """Cancels what was asked for in the scope, in order; what is to be awaited for it."""
        if not scope.cancel():
            return
        for operation in list(self.operations.values()):
            if operation.scope.canceled and not operation.done:
                yield from self.cancel_one(operation)

    def cancel_one(self, operation):
        if operation.kind == "message":
            return
        if operation.kind == "timer":
            operation.handle.cancel()
            operation.done, operation.error = True, canceled("timer")
            return
        withdrawn = operation.turn == self.turn and operation.policy != "abandon"
        if operation.policy != "abandon" and not operation.cancel_asked:
            operation.cancel_asked = True
            if operation.kind == "activity" or operation.started is not None or withdrawn:
                (operation.started or operation.handle).cancel()
            else:
                # Before it has started, the SDK would not say how it ends.
                external = workflow.get_external_workflow_handle(operation.workflow_id)
                self.task(external.cancel())
            yield tick()
        if operation.policy != "wait" or withdrawn:
            operation.done, operation.error = True, canceled(operation.kind)

    def task(self, awaitable):
        async def quiet():
            try:
                return True, await awaitable
            except (FailureError, asyncio.CancelledError) as error:
                return False, error

        return asyncio.create_task(quiet())

    def begin(self, kind, scope, policy=None):
        if scope.canceled:
            raise canceled(f"{kind} not started")
        self.seq += 1
        operation = Operation(kind, scope, policy, self.turn)
        self.operations[self.seq] = operation
        return operation

    def ended(self, operation, handle):
        """When the handle of the SDK is done, so is the operation, unless it was over before."""

        def done(task):
            if not operation.done:
                operation.done = True
                if task.cancelled():
                    operation.error = canceled(operation.kind)
                elif task.exception() is not None:
                    operation.error = task.exception()
                else:
                    operation.result = task.result()
            elif not task.cancelled():
                task.exception()
            self.woken.set()

        handle.add_done_callback(done)

    async def end_of(self, operation):
        await Wait(lambda: None if operation.done else PENDING)
        if operation.error is not None:
            raise of(operation.error)
        return operation.result

    def random_bytes(self):
        self.random += 1
        run = uuid.UUID(workflow.info().run_id).bytes
        return blake3(b"bosun random" + run + self.random.to_bytes(8, "big"))

    def lookup(self, name):
        value = None
        for index, key in enumerate(name.split(".")):
            if index == 0:
                value = self.vars.get(key)
            elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
                value = value[int(key)]
            elif isinstance(value, dict):
                value = value.get(key)
            else:
                return None
        return value

    def value(self, value):
        if isinstance(value, str) and value.startswith("$"):
            return value[1:] if value.startswith("$$") else self.lookup(value[1:])
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, dict):
            return {key: self.value(one) for key, one in value.items()}
        return value

    def save(self, name, value):
        if name is not None:
            self.vars[name] = value

    async def steps(self, scope, steps):
        for step in steps:
            ((name, given),) = step.items()
            flow = await getattr(self, "do_" + name)(scope, given)
            if isinstance(flow, Returned):
                return flow
        return None

    async def do_activity(self, scope, given):
        value = self.value(given.get("input"))
        policy = given.get("cancellation", "try")
        operation = self.begin("activity", scope, policy)
        retry = given.get("retry")
        close = period(given, "schedule_to_close")
        operation.handle = workflow.start_activity(
            given["type"],
            value,
            start_to_close_timeout=period(given, "start_to_close") or (None if close else timedelta(seconds=30)),
            schedule_to_close_timeout=close,
            heartbeat_timeout=period(given, "heartbeat"),
            task_queue=given.get("task_queue"),
            retry_policy=RetryPolicy(maximum_attempts=retry.get("maximum_attempts", 0)) if retry else None,
            cancellation_type=CANCELLATION[policy],
            summary=given.get("summary"),
        )
        self.ended(operation, operation.handle)
        self.save(given.get("as"), await self.end_of(operation))

    def timer(self, scope, delay):
        operation = self.begin("timer", scope)

        def fired():
            operation.done = True
            self.woken.set()

        operation.handle = asyncio.get_running_loop().call_later(delay, fired)
        return operation

    async def do_timer(self, scope, given):
        await self.end_of(self.timer(scope, seconds(given if isinstance(given, str) else given["for"])))

    async def do_sleep_until(self, scope, given):
        await self.end_of(self.timer(scope, max(0, self.value(given) / 1000 - workflow.time())))

    async def receive(self, scope, name):
        def ready():
            if scope.canceled:
                return canceled("signal")
            waiting = self.signals.get(name)
            return (waiting.pop(0),) if waiting else PENDING

        found = await Wait(ready)
        if isinstance(found, Failed):
            raise found
        return found[0]

    async def do_wait_signal(self, scope, given):
        if given.get("timeout") is None:
            value = await self.receive(scope, given["name"])
        else:

            async def clock(scope):
                await self.end_of(self.timer(scope, seconds(given["timeout"])))

            receive = lambda scope: self.receive(scope, given["name"])
            _, (value, error) = await self.race(scope, [receive, clock])
            if error is not None:
                raise error
        self.save(given.get("as"), value)

    async def do_drain_signals(self, scope, given):
        self.save(given.get("as"), self.signals.pop(given["name"], []))

    async def do_wait_var(self, scope, given):
        name, wanted, key = given["name"], self.value(given.get("equals")), object()

        def holds():
            return name in self.vars and same(self.vars[name], wanted)

        self.conditions[key] = (holds, holds())

        def ready():
            if scope.canceled:
                return canceled("condition")
            return None if self.conditions[key][1] and holds() else PENDING

        try:
            found = await Wait(ready)
        finally:
            self.conditions.pop(key)
        if found is not None:
            raise found

    async def do_child(self, scope, given):
        kind = given.get("type", "kitchen-sink")
        if given.get("id") is not None:
            workflow_id = self.value(given["id"])
        else:
            workflow_id = f"{workflow.info().workflow_id}/{random_uuid(self.random_bytes())}"
        value = given.get("input") if kind == "kitchen-sink" else self.value(given.get("input"))
        policy = given.get("cancellation", "try")
        operation = self.begin("child", scope, policy)
        operation.workflow_id = workflow_id
        operation.handle = asyncio.create_task(
            workflow.start_child_workflow(
                kind,
                value,
                id=workflow_id,
                cancellation_type=CHILD_CANCELLATION[policy],
                parent_close_policy=CLOSE[given.get("close_policy", "terminate")],
            )
        )

        def started(task):
            if task.cancelled() or task.exception() is not None:
                error = canceled("child") if task.cancelled() else task.exception()
                if not operation.done:
                    operation.done, operation.error = True, error
            else:
                operation.started = task.result()
                self.ended(operation, operation.started)
            self.woken.set()

        operation.handle.add_done_callback(started)
        await Block(tick())
        if given.get("wait", True):
            self.save(given.get("as"), await self.end_of(operation))
            return
        await Wait(lambda: None if operation.started is not None or operation.done else PENDING)
        if operation.error is not None:
            raise of(operation.error)
        self.save(given.get("as"), getattr(operation.started, "first_execution_run_id", None))

    async def message(self, scope, awaitable):
        operation = self.begin("message", scope)
        operation.handle = asyncio.create_task(awaitable)
        self.ended(operation, operation.handle)
        await Block(tick())
        await self.end_of(operation)

    async def do_signal(self, scope, given):
        target = workflow.get_external_workflow_handle(self.value(given["workflow_id"]))
        value = self.value(given.get("input"))
        if scope.canceled:
            raise canceled("signal")
        await self.message(scope, target.signal(given["name"], value))

    async def do_cancel_workflow(self, scope, given):
        target = workflow.get_external_workflow_handle(self.value(given["workflow_id"]))
        if scope.canceled:
            raise canceled("cancel request")
        await self.message(scope, target.cancel())

    async def do_parallel(self, scope, given):
        flows = await join([self.steps(Scope(scope), steps) for steps in given])
        for flow in flows:
            if isinstance(flow, (Failed, GoesOn)):
                raise flow
        return next((flow for flow in flows if isinstance(flow, Returned)), None)

    async def race(self, scope, branches):
        """The number and the outcome of the first branch to end; the others are canceled, and waited for."""
        scopes = [Scope(scope) for _ in branches]
        running = [self.outcome(branch(scope)) for branch, scope in zip(branches, scopes)]
        winner = None
        while winner is None:
            for index, branch in enumerate(running):
                done, outcome = await Poll(branch)
                if done:
                    winner = index
                    break
            else:
                await Yield()
        for index, scope in enumerate(scopes):
            if index != winner:
                for asked in self.cancel(scope):
                    await Block(asked)
        await join([branch for index, branch in enumerate(running) if index != winner])
        return winner, outcome

    async def do_race(self, scope, given):
        branches = [lambda scope, steps=steps: self.steps(scope, steps) for steps in given["branches"]]
        winner, (flow, error) = await self.race(scope, branches)
        self.save(given.get("as"), winner)
        if error is not None:
            raise error
        return flow

    async def outcome(self, branch):
        try:
            return await branch, None
        except (Failed, GoesOn) as error:
            return None, error

    async def do_loop(self, scope, given):
        for index in range(given["times"]):
            self.save(given.get("as"), index)
            flow = await self.steps(scope, given["steps"])
            if isinstance(flow, Returned):
                return flow

    async def do_if(self, scope, given):
        holds = same(self.lookup(given["var"]), self.value(given.get("equals")))
        return await self.steps(scope, given.get("then" if holds else "else") or [])

    async def do_try(self, scope, given):
        flow, error = await self.outcome(self.steps(scope, given["steps"]))
        if isinstance(error, Failed) and "catch" in given and not (error.canceled and scope.canceled):
            self.save(given.get("as"), {"type": error.kind, "message": error.message})
            flow, error = await self.outcome(self.steps(scope, given["catch"]))
        always = await self.steps(Scope(), given.get("always") or [])
        if error is None and isinstance(always, Returned):
            return always
        if error is not None:
            raise error
        return flow

    async def do_saga(self, scope, pairs):
        undos, error = [], None
        for pair in pairs:
            undos.append(pair.get("undo") or [])
            flow, error = await self.outcome(self.steps(scope, pair["do"]))
            if error is not None:
                break
            if isinstance(flow, Returned):
                return flow
        if error is None:
            return None
        if isinstance(error, GoesOn):
            raise error
        cleanup, failed = Scope(), []
        for undo in reversed(undos):
            _, why = await self.outcome(self.steps(cleanup, undo))
            if why is not None:
                failed.append(str(why))
        if failed:
            raise Compensation("CompensationFailed", "; ".join(failed), error.canceled)
        raise error

    async def do_side_effect(self, scope, given):
        value = self.value(given.get("value"))
        self.seq += 1
        handle = workflow.start_local_activity(
            "bosun.side_effect",
            value,
            activity_id=f"bosun.side_effect-{self.seq}",
            start_to_close_timeout=timedelta(seconds=10),
        )
        self.save(given.get("as"), await Block(handle))

    async def do_random(self, scope, name):
        self.save(name, int.from_bytes(self.random_bytes()[:8], "big"))

    async def do_uuid(self, scope, name):
        self.save(name, str(random_uuid(self.random_bytes())))

    async def do_now(self, scope, name):
        self.save(name, workflow.time_ns() // 1_000_000)

    async def do_patch(self, scope, given):
        return await self.steps(scope, given.get("new" if workflow.patched(given["id"]) else "old") or [])

    async def do_deprecate_patch(self, scope, given):
        workflow.deprecate_patch(given)

    async def do_upsert(self, scope, given):
        keys = {str: SearchAttributeKey.for_keyword, int: SearchAttributeKey.for_int, bool: SearchAttributeKey.for_bool}
        given = self.value(given)
        workflow.upsert_search_attributes([keys[type(value)](name).value_set(value) for name, value in given.items()])

    async def do_memo(self, scope, given):
        workflow.upsert_memo(self.value(given))

    async def do_set(self, scope, given):
        self.vars.update(self.value(given))

    async def do_wait_cancel(self, scope, name):
        await Wait(lambda: None if scope.canceled else PENDING)
        self.save(name, workflow.cancellation_reason() or "")

    async def do_continue_as_new(self, scope, given):
        steps = given.get("steps", self.program.get("steps"))
        raise GoesOn({"steps": steps, "vars": {**self.vars, **self.value(given.get("vars") or {})}})

    async def do_fail(self, scope, given):
        message = self.value(given.get("message"))
        raise Failed(given.get("type", "Failed"), str(message), non_retryable=given.get("non_retryable", False))

    async def do_return(self, scope, given):
        return Returned(self.value(given))


class Compensation(Failed):
    """Its cause may be a cancellation; a run that ends in it has failed all the same."""


async def tick():
    """Lets tasks of the SDK ask for what they were made for."""
    for _ in range(4):
        await asyncio.sleep(0)


def random_uuid(data):
    """As the version 4 of these bytes."""
    return uuid.UUID(bytes=data[:16], version=4)


IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
MIXES = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]


def blake3(data):
    """The BLAKE3 hash of at most 64 bytes: one block, which is the root."""
    block = data.ljust(64, b"\0")
    words = [int.from_bytes(block[i : i + 4], "little") for i in range(0, 64, 4)]
    state = IV + IV[:4] + [0, 0, len(data), 1 | 2 | 8]

    def rotated(value, by):
        return (value >> by | value << (32 - by)) & 0xFFFFFFFF

    for _ in range(7):
        for index, (a, b, c, d) in enumerate(MIXES):
            for word, first, second in ((words[2 * index], 16, 12), (words[2 * index + 1], 8, 7)):
                state[a] = (state[a] + state[b] + word) & 0xFFFFFFFF
                state[d] = rotated(state[d] ^ state[a], first)
                state[c] = (state[c] + state[d]) & 0xFFFFFFFF
                state[b] = rotated(state[b] ^ state[c], second)
        words = [words[place] for place in ORDER]
    return b"".join((state[i] ^ state[i + 8]).to_bytes(4, "little") for i in range(8))


async def main(folder):
    replayer = Replayer(workflows=[KitchenSink], workflow_runner=UnsandboxedWorkflowRunner())
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            told = json.load(file)
        try:
            history = WorkflowHistory.from_json(told["workflow_id"], told["history"])
            result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
            refused = None if result.replay_failure is None else repr(result.replay_failure)
        except Exception as error:
            refused = repr(error)
        print(json.dumps({"file": name, "refused": refused}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
