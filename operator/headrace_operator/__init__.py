"""The Kubernetes operator of Headrace: it turns `Subscriber` resources into worker deployments and sets their size.

It never imports the `headrace` package: the two meet in the published views and in the worker's environment alone.
"""

__version__ = "0.1.0"
