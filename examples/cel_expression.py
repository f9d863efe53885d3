"""Compile and evaluate a CEL expression within a cost budget."""

from controller_manager.common.cel import INT, CostBudget, Environment

program = Environment.base().extend({"replicas": INT}).compile("replicas > 2 && [1, 2].exists(i, i == replicas - 2)")
budget = CostBudget(1_000_000)
assert program.evaluate({"replicas": 3}, budget) is True
assert budget.spent == 14
