"""Policies in CEL: the plugin ValidatingAdmissionPolicy, and what all kinds of policies are made of.

| module       | what it has                                                                                        |
|--------------|----------------------------------------------------------------------------------------------------|
| `index`      | `PolicyIndex`: the bound policies of a kind, which of them concern a request, and their programs     |
| `parameters` | `Parameters`: the objects that a binding refers to, in the version of the policy                    |
| `inputs`     | `RequestInputs`: what expressions are given of a request, once for all policies                     |
| `evaluation` | `evaluated`: has a step done with a `Scope`, in the thread if it takes long, with the authorizer's   |
|              | answers; the scope evaluates match conditions, and gives an `Evaluation` for other expressions      |
| `validator`  | `ValidatingProgram`: the compiled expressions of a validating policy, and their decisions           |
| `validating` | the plugin: bindings, parameters, and what follows from decisions                                   |

Expressions themselves are compiled and evaluated by `controller_manager/cel/admission.py`. `evaluation` and programs
load CEL: plugins import them when there is something to compile.
"""
