"""SQL92 message filters, as Apache's brokers understand them: text to tokens to tree to one closure.

    lexer.py        words, numbers, texts and symbols, each with its position
    tree.py         what an expression can be
    rules.py        what may stand where: `a > 'x'` is a sentence, but not a filter
    parser.py       tokens to tree
    conversions.py  texts as Java reads them: properties are texts, and a number in the filter decides how they are read
    comparisons.py  what two operands have in common, and the closure that compares them
    compiler.py     tree to closure, evaluated in three-valued logic

`docs/sql92.md` tells users what they may write; `docs/decisions/sql92.md` where we differ from Apache.
"""

from ariane.broker.pull.sql92.compiler import Predicate, compile_sql

__all__ = ["Predicate", "compile_sql"]
