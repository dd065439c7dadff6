"""Confirmation tokens: issued to an owner, redeemed once, replayed afterwards.

    tokens = Tokens(once, "confirm_ride", unknown="rerun")
    issued = tokens.issue("passenger-7", {"price": "15.50"})
    ride = tokens.redeem(issued.token, "passenger-7", create_ride).value

AsyncTokens has the same methods, awaited.
"""

from umavez._async.tokens import AsyncTokens
from umavez._sync.tokens import Tokens
from umavez.core.token import TokenState
from umavez.core.token_errors import (
    TokenCancelled,
    TokenError,
    TokenExpired,
    TokenNotYours,
    TokenUnknown,
    TokenUsed,
    TooManyTokens,
)
from umavez.core.token_view import Issued, TokenView

__all__ = [
    "AsyncTokens",
    "Issued",
    "TokenCancelled",
    "TokenError",
    "TokenExpired",
    "TokenNotYours",
    "TokenState",
    "TokenUnknown",
    "TokenUsed",
    "TokenView",
    "Tokens",
    "TooManyTokens",
]
