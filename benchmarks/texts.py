"""What is said in the benchmarks."""

from __future__ import annotations

SHORT = "I can book that table for you at seven this evening."
LONG = (
    "Your appointment is confirmed for Tuesday the fifteenth of March at three thirty in the "
    "afternoon with Doctor Henderson, and we have sent a text message with the details to the "
    "phone number on file."
)
SIX_SENTENCES = (
    "Thanks for calling, how can I help you today? Your appointment is confirmed for Tuesday the "
    "fifteenth of March at three thirty in the afternoon. I have sent a text message with the "
    "details to the phone number on file. Please hold while I transfer you to the billing "
    "department. The weather in Chicago is cloudy with a chance of rain this evening. Your order "
    "has shipped and should arrive by the end of the week."
)
SENTENCES = [
    "Thanks for calling, how can I help you today?",
    (
        "Your appointment is confirmed for Tuesday the fifteenth of March at three thirty in the "
        "afternoon."
    ),
    "I have sent a text message with the details to the phone number on file.",
    "Please hold while I transfer you to the billing department.",
    "The weather in Chicago is cloudy with a chance of rain this evening.",
    "Your order has shipped and should arrive by the end of the week.",
    "Could you please repeat the last four digits of your account number?",
    "We are open from nine in the morning until six at night on weekdays.",
    "The quick brown fox jumps over the lazy dog near the river bank.",
    "I am sorry for the delay, let me check that for you right away.",
]
REPLY = (
    "If you would like to come by on Thursday afternoon we still have a free appointment at half "
    "past three with the same doctor who looked after you when you were here in the spring."
)  # 35 words
