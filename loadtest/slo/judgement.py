"""What one probe says of its rate. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.objective import Evidence, Finding, Joules, Objectives
from loadtest.searched import ProbeVerdict
from loadtest.validity import cause_of


@dataclass(frozen=True)
class Judgement:
    """Attributes: ``why`` says in words what decided."""

    verdict: ProbeVerdict
    why: str
    findings: tuple[Finding, ...]


def judge_probe(objectives: Objectives, seen: Evidence) -> Judgement:
    """One window at one rate.

    - void: it is INVALID for reasons that say nothing of the server under this load (client-bound,
      a dead server, wrong answers), or for any reason while nothing shows a miss.
    - missed: it was ended early, an objective is missed, or requests failed or were lost under it.
    - costly: only the energy is missed. A lower rate makes that worse: fewer inferences share what
      the machine uses when idle.
    - met: all are met, and it is VALID.
    """
    trial = seen.trial
    findings = objectives.hold(seen)
    beside = [reason for reason in trial.reasons if cause_of(reason) == "beside"]
    if beside:
        return Judgement("void", "; ".join(beside), findings)
    if trial.cut:
        return Judgement("missed", trial.cut, findings)
    missed = [one for one in findings if one.state == "missed"]
    lasting = [one.told for one in missed if not isinstance(one.objective, Joules)]
    overload = [reason for reason in trial.reasons if cause_of(reason) == "overload"]
    if lasting or overload:
        return Judgement("missed", "; ".join([*lasting, *overload]), findings)
    unknown = [one.told for one in findings if one.state == "unknown"]
    if trial.verdict == "INVALID" or unknown:
        return Judgement("void", "; ".join([*trial.reasons, *unknown]), findings)
    told = "; ".join(one.told for one in missed or findings)
    return Judgement("costly" if missed else "met", told, findings)
