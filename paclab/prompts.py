"""The papers' prompts as plain strings; knows no tokenizer and no model (PACZero, prompts of MeZO's OPT runs)."""

SENTIMENT_WORDS = (" terrible", " great")  # label 0, label 1; one token each in the GPT-2 family


def sentiment(sentence: str) -> str:
    """The SST-2 prompt without its label word: `<sentence> It was`."""
    return f"{sentence.strip()} It was"


def masked_sentiment(sentence: str, mask: str) -> str:
    """The prompt of the masked-model track: `<sentence> It was <mask>.`, without a space before the dot as in MeZO."""
    return f"{sentence.strip()} It was {mask}."


def question(title: str, context: str, query: str) -> str:
    """The SQuAD v1.1 prompt: four labelled lines; the answer is written after the last label."""
    return f"Title: {title}\nContext: {context}\nQuestion: {query.strip()}\nAnswer:"


def answer(text: str) -> str:
    """The gold continuation of `question`: a space, the answer, a line end."""
    return f" {text}\n"
