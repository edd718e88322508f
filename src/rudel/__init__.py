"""Rudel trains one Keras 3 model on whatever computers you have and puts it wherever you need it.

>>> import rudel
>>> rudel.__version__
'0.1.0'
"""

__version__ = "0.1.0"
