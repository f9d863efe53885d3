"""Policies in CEL: the plugins ValidatingAdmissionPolicy and MutatingAdmissionPolicy and their parts.

| module                | contents                                                                                  |
|-----------------------|-------------------------------------------------------------------------------------------|
| `index`               | `PolicyIndex`: the bound policies of a kind, their match criteria and programs            |
| `parameters`          | `Parameters`: the objects that a binding refers to, in the version of the policy          |
| `inputs`              | `RequestInputs`: the variables of expressions, shared by all policies of a request        |
| `evaluation`          | `evaluated`: runs a step with a `Scope`, in the thread if it takes long, with the         |
|                       | authorizer's answers; the scope evaluates match conditions, and returns an `Evaluation`   |
| `validator`           | `ValidatingProgram`: the compiled expressions of a validating policy, and their decisions |
| `validating`          | the plugin: bindings, parameters, and the effects of decisions                            |
| `mutator`             | `MutatingProgram`: the compiled expressions of a mutating policy, and their mutations     |
| `apply_configuration` | merges an apply configuration from an expression into an object                           |
| `json_patches`        | applies a JSON patch from an expression to an object                                      |
| `mutation`            | target and errors of mutations                                                            |
| `mutating`            | the plugin: the order of invocations and reinvocation                                     |
| `permission`          | requires that authors of policies and bindings may read the parameters                    |

`controller_manager/common/cel/admission.py` compiles and evaluates expressions. `evaluation` and programs load CEL:
plugins import them when there is something to compile.
"""
