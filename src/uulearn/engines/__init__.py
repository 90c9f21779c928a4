"""Other places to do the work of a command: the machines of a Ray cluster.

Ray is an extra (``pip install 'uulearn[ray]'``) and is imported only when work is sent to it.
"""
