"""The live page of a training: `rudel watch`.

Guarantee: everything on the page comes from the run directory, which is only read, so a training neither knows nor
feels that it is watched, and it may run anywhere that writes to that directory. The page loads nothing from elsewhere.
Limit: it can tell no more than the directory does. Between two epochs of a training on one computer that is the
checkpoints, four a minute.
"""
