.PHONY: images
## Build the container images as archives in dist/images, without Docker.
images:
	images/build.sh $(IMAGES)
