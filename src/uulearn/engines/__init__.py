"""Run commands on the machines of a Ray cluster.

Ray is an optional dependency (``pip install 'uulearn[ray]'``) and is imported on first use.
"""
