"""Policies in CEL: the plugins ValidatingAdmissionPolicy and MutatingAdmissionPolicy, and what both are made of.

| module                | what it has                                                                               |
|-----------------------|-------------------------------------------------------------------------------------------|
| `index`               | `PolicyIndex`: the bound policies of a kind, which concern a request, and their programs  |
| `parameters`          | `Parameters`: the objects that a binding refers to, in the version of the policy          |
| `inputs`              | `RequestInputs`: what expressions are given of a request, once for all policies           |
| `evaluation`          | `evaluated`: has a step done with a `Scope`, in the thread if it takes long, with the     |
|                       | authorizer's answers; the scope evaluates match conditions, and gives an `Evaluation`     |
| `validator`           | `ValidatingProgram`: the compiled expressions of a validating policy, and their decisions |
| `validating`          | the plugin: bindings, parameters, and what follows from decisions                         |
| `mutator`             | `MutatingProgram`: the same of a mutating policy, and what they make of objects           |
| `apply_configuration` | a configuration that an expression made, merged into an object                            |
| `json_patches`        | a patch that an expression made, applied to an object                                     |
| `mutation`            | what both are about, and how they fail                                                    |
| `mutating`            | the plugin: which policies are invoked in which order, and a second time                  |
| `permission`          | authors of policies and bindings may read the parameters these refer to                   |

`controller_manager/common/cel/admission.py` compiles and evaluates expressions. `evaluation` and programs
load CEL: plugins import them when there is something to compile.
"""
