"""What can be wrong with a confirmation token. The sentences may be shown to whoever sent it.

TokenError
    TokenUnknown     no such token, or none any more
    TokenNotYours    it was issued to somebody else; says the same as TokenUnknown
    TokenExpired     its time passed unused
    TokenCancelled   it was cancelled
    TokenUsed        it was redeemed, so it can no longer be cancelled
    TooManyTokens    its owner holds as many unused tokens as are allowed
"""

from __future__ import annotations

from umavez.errors import UmavezError


class TokenError(UmavezError):
    """A token that cannot be redeemed. `code` is for machines; `retry` tells whether a new token helps."""

    code = "token_error"
    retry = True
    sentence = "This token cannot be used."

    def __init__(self, sentence: str | None = None) -> None:
        super().__init__(self.sentence if sentence is None else sentence)


class TokenUnknown(TokenError):
    """No such token is kept: it was never issued, or was swept long after its time."""

    code = "token_unknown"
    sentence = "This token is not valid; ask for a new one."


class TokenNotYours(TokenError):
    """The token was issued to somebody else. Its sentence equals TokenUnknown's: only the log may tell them apart."""

    code = "token_not_yours"
    sentence = TokenUnknown.sentence


class TokenExpired(TokenError):
    """The token's time passed before it was redeemed."""

    code = "token_expired"
    sentence = "This token has expired; ask for a new one."


class TokenCancelled(TokenError):
    """The token was cancelled before it was redeemed."""

    code = "token_cancelled"
    sentence = "This token was cancelled; ask for a new one."


class TokenUsed(TokenError):
    """The token was redeemed, so it can no longer be cancelled."""

    code = "token_used"
    retry = False
    sentence = "This token was used already; what it did cannot be cancelled with it."


class TooManyTokens(TokenError):
    """The owner holds as many unused tokens as are allowed; one must be used, cancelled or expire first."""

    code = "too_many_tokens"
    retry = False
    sentence = "Too many unused tokens are waiting; use or cancel one first."
