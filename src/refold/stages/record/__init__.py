"""The record of a fold, written without a model: the state of the work, what happened, and exact values.

``source`` collects what a fold replaces, ``lines`` and ``story`` choose what is written of it, ``record`` writes it in
the style of the preset, ``frame`` has the lines around it. Everything quoted is verbatim; every omission is counted.
"""
