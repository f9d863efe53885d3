"""The libraries of Kubernetes' base environment 1.36, in the order in which overloads of a function are tried.

It does not include cel-go's extensions `math`, `encoders`, `bindings`, `protos` and `regex`.
"""

from controller_manager.common.cel.library.authorizer import AUTHORIZERS, SELECTORS
from controller_manager.common.cel.library.comprehensions import TWO_VARIABLES
from controller_manager.common.cel.library.formats import NAMED_FORMATS
from controller_manager.common.cel.library.ip import CIDRS, IPS
from controller_manager.common.cel.library.list_extensions import LIST_EXTENSIONS
from controller_manager.common.cel.library.lists import LISTS
from controller_manager.common.cel.library.optionals import OPTIONALS
from controller_manager.common.cel.library.quantity import QUANTITIES
from controller_manager.common.cel.library.regex import REGEX
from controller_manager.common.cel.library.semver import SEMVER
from controller_manager.common.cel.library.sets import SETS
from controller_manager.common.cel.library.strings import STRINGS
from controller_manager.common.cel.library.url import URLS

BASE_LIBRARIES = (
    URLS,
    REGEX,
    LISTS,
    AUTHORIZERS,
    OPTIONALS,
    QUANTITIES,
    STRINGS,
    SETS,
    IPS,
    CIDRS,
    NAMED_FORMATS,
    SELECTORS,
    TWO_VARIABLES,
    SEMVER,
    LIST_EXTENSIONS,
)
