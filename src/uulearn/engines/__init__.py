"""Run commands on the machines of a Ray cluster.

Ray is an extra (``pip install 'uulearn[ray]'``) that is imported on first use.
"""
